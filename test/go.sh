# What Go needs to know in scripts. Source it.
#
# libvirt is opened at run time, and gin speaks no MessagePack. Without the paths of the source, a clone in another
# directory takes what is compiled from Go's cache. Linking the tests of a hundred packages is a large part of the work,
# and a third of that are symbols for debuggers.
# shellcheck shell=bash
export GOFLAGS="-tags=libvirt_dlopen,nomsgpack,netgo,osusergo -trimpath -ldflags=-s"
