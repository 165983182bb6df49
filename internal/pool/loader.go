package pool

import (
	"debug/elf"
	"encoding/binary"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
)

// Programs find OpenCL by a loader, libOpenCL.so.1, which is in an image or is not.
// For those that find none there is ours beside the client library, in a folder of
// its own: it has the functions of a loader, and does what is asked of them itself.

// LoaderFolder is that folder, and LoaderFile the loader in it.
const (
	LoaderFolder = "loader"
	LoaderFile   = LoaderFolder + "/" + loaderLibrary
)

// LoaderPlaces are where a container is shown the loader whose image and environment
// are not known: where the system's search ends. Debian and those made of it look
// into /usr/lib last, so that an image's own loader wins; Red Hat's kind looks for
// all into /usr/lib64, where ours takes the place of one that is there, and does the same.
// What is mounted at or above a place keeps it.
func LoaderPlaces(mounted []string) (places []string) {
	for _, place := range []string{"/usr/lib/" + loaderLibrary, "/usr/lib64/" + loaderLibrary} {
		if !slices.ContainsFunc(mounted, func(at string) bool {
			return strings.HasPrefix(place+"/", strings.TrimSuffix(filepath.Clean(at), "/")+"/")
		}) {
			places = append(places, place)
		}
	}
	return places
}

func unpackLoader(dir string) error {
	dir = filepath.Join(dir, LoaderFolder)
	if _, err := unpack(dir, loaderLibrary); err != nil {
		return err
	}
	return links(dir, loaderLibrary, "libOpenCL.so")
}

// SearchPath is a search path of libraries (LD_LIBRARY_PATH) by which programs find
// a loader of OpenCL whose root is at root and whose path is that: with the folder
// of ours, last, if there is no other where the system keeps libraries, which would
// be looked at after it.
func SearchPath(root, path, ours string) string {
	if hasLoader(root, path) {
		return path
	}
	if path == "" {
		return ours
	}
	return path + ":" + ours
}

// machines are this one's names: in folders, and in libraries.
var machines = map[string]struct {
	folder string
	elf    elf.Machine
}{"amd64": {"x86_64-linux-gnu", elf.EM_X86_64}, "arm64": {"aarch64-linux-gnu", elf.EM_AARCH64}}

// cached are the loaders that the system's list of libraries (/etc/ld.so.cache) names.
var cached = regexp.MustCompile(`/(?:usr/|lib)[^\x00]*/libOpenCL\.so\.1\x00`)

// maxCache bounds the list of libraries that is looked at.
const maxCache = 16 << 20

// hasLoader reports whether programs find a loader of this machine's in a root: in
// their search path, or where a system keeps libraries.
func hasLoader(dir, path string) bool {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return false
	}
	defer root.Close()
	m := machines[runtime.GOARCH]
	var places []string
	for _, folder := range strings.FieldsFunc(path, func(c rune) bool { return c == ':' || c == ';' }) {
		places = append(places, filepath.Join(folder, loaderLibrary))
	}
	for _, folder := range []string{"lib/" + m.folder, "usr/lib/" + m.folder, "lib64", "usr/lib64", "lib", "usr/lib"} {
		places = append(places, filepath.Join(folder, loaderLibrary))
	}
	if st, err := root.Stat("etc/ld.so.cache"); err == nil && st.Mode().IsRegular() && st.Size() <= maxCache {
		if list, err := root.ReadFile("etc/ld.so.cache"); err == nil {
			for _, p := range cached.FindAll(list, -1) {
				places = append(places, strings.TrimSuffix(string(p), "\x00"))
			}
		}
	}
	for _, p := range places {
		if isLibrary(root, strings.TrimPrefix(filepath.Clean(p), "/"), m.elf) {
			return true
		}
	}
	return false
}

// isLibrary reports whether a file of a root is a library of a machine, or cannot be
// looked at from here, as a link that begins at the root cannot.
func isLibrary(root *os.Root, path string, m elf.Machine) bool {
	if st, err := root.Stat(path); err != nil || !st.Mode().IsRegular() {
		_, there := root.Lstat(path)
		return there == nil && err != nil && !errors.Is(err, fs.ErrNotExist)
	}
	f, err := root.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	var head [20]byte // of which no more is taken from an image
	_, err = io.ReadFull(f, head[:])
	return err == nil && string(head[:4]) == elf.ELFMAG && elf.Class(head[elf.EI_CLASS]) == elf.ELFCLASS64 && elf.Machine(binary.LittleEndian.Uint16(head[18:])) == m
}
