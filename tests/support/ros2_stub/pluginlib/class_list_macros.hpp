// Instead of a registry of classes: one function that makes the plugin.
#pragma once

#define PLUGINLIB_EXPORT_CLASS(Plugin, Interface) \
  Interface * make_plugin();                      \
  Interface * make_plugin() { return new Plugin; }
