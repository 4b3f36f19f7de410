// Package urioracle asks the installed libvirt how it reads a connection URI, for tests: nothing is connected to.
package urioracle

/*
#cgo LDFLAGS: -ldl
#include <dlfcn.h>
#include <stdlib.h>

// As src/util/viruri.h of libvirt has them.
typedef struct { char *name; char *value; _Bool ignore; } param;
typedef struct {
  char *scheme; char *server; char *user; int port; char *path; char *query; char *fragment;
  size_t count; size_t room; param *params;
} uri;

static void *library(void) { return dlopen("libvirt.so.0", RTLD_NOW | RTLD_GLOBAL); }
static void *find(void *lib, const char *name) { return dlsym(lib, name); }
static uri *parse(void *fn, const char *text) { return ((uri *(*)(const char *))fn)(text); }
static void release(void *fn, uri *u) { ((void (*)(uri *))fn)(u); }
static int start(void *fn) { return ((int (*)(void))fn)(); }
static param *at(uri *u, size_t i) { return &u->params[i]; }
*/
import "C"

import (
	"sync"
	"unsafe"
)

// URI is what libvirt has read.
type URI struct {
	Scheme, Server, User, Path, Query, Fragment string
	Port                                        int
	Params                                      [][2]string // of the query, unescaped, in their order
}

type functions struct{ parse, free unsafe.Pointer }

var load = sync.OnceValue(func() *functions {
	lib := C.library()
	if lib == nil {
		return nil
	}
	find := func(name string) unsafe.Pointer {
		text := C.CString(name)
		defer C.free(unsafe.Pointer(text))
		return C.find(lib, text)
	}
	begin, f := find("virInitialize"), &functions{find("virURIParse"), find("virURIFree")}
	if begin == nil || f.parse == nil || f.free == nil || C.start(begin) != 0 {
		return nil
	}
	return f
})

// Installed tells whether there is a libvirt to ask.
func Installed() bool { return load() != nil }

// Parse returns what libvirt reads, and false if it refuses the text. Installed must be true.
func Parse(text string) (URI, bool) {
	f := load()
	in := C.CString(text)
	defer C.free(unsafe.Pointer(in))
	u := C.parse(f.parse, in)
	if u == nil {
		return URI{}, false
	}
	defer C.release(f.free, u)
	out := URI{
		Scheme: C.GoString(u.scheme), Server: C.GoString(u.server), User: C.GoString(u.user), Port: int(u.port),
		Path:  C.GoString(u.path),
		Query: C.GoString(u.query), Fragment: C.GoString(u.fragment),
	}
	for i := range u.count {
		p := C.at(u, i)
		out.Params = append(out.Params, [2]string{C.GoString(p.name), C.GoString(p.value)})
	}
	return out, true
}
