"""What the fork server of the tests imports once, for all processes that are forked from it."""

import gc
import importlib
import pkgutil

import vdl_ros.nodes

for each in pkgutil.iter_modules(vdl_ros.nodes.__path__):
    importlib.import_module(f'vdl_ros.nodes.{each.name}')
# Forked processes share these objects instead of copying them at their first collection.
gc.collect()
gc.freeze()
