package worker

import (
	"os"
	"path/filepath"
	"strings"
	"sync"

	"yunhe.dev/yunhe/internal/pool/wire"
)

// headers are the files that a source includes from folders of the program's
// machine, which its build options name, and others.
type headers struct {
	dirs  []string // in the order of the options, and then those that these do not name
	files []header
}

type header struct {
	path string // on the program's machine
	text []byte
}

// readHeaders reads what is left of a message: no more than a client sends.
func readHeaders(b *wire.Body) (h headers, err error) {
	if len(b.Rest()) == 0 {
		return h, nil
	}
	path := func() string {
		p := string(b.Bytes())
		if len(p) > mostPath || !filepath.IsAbs(p) || strings.ContainsAny(p, "\x00\"") || p != filepath.Clean(p) {
			err = errEnd
		}
		return p
	}
	dirs, bytes := b.Count(8), 0
	if dirs > mostDirs {
		return h, errEnd
	}
	for range dirs {
		h.dirs = append(h.dirs, path())
	}
	files, made := b.Count(16), map[string]bool{}
	if files > mostFiles {
		return h, errEnd
	}
	for range files {
		f := header{path(), b.Bytes()}
		h.files = append(h.files, f)
		for dir := filepath.Dir(f.path); err == nil && !made[dir]; dir = filepath.Dir(dir) {
			made[dir] = true
		}
		if bytes += len(f.text); bytes > mostHeaders || len(made) > mostMade {
			return h, errEnd
		}
	}
	return h, err
}

// options of a compiler come from the program. Those that name files of the
// node's are not for it: its own folders are replaced by where their files are
// put, of the others it is false.
func (h headers) options(text string) (string, bool) {
	if strings.ContainsRune(text, 0) {
		return "", false
	}
	dirs := h.dirs
	var out []string
	include := func(dir string) {
		if dir = "." + dir; len(h.files) == 0 {
			return
		}
		if strings.ContainsAny(dir, " \t\n\v\f\r") { // not every driver knows quotes
			dir = `"` + dir + `"`
		}
		out = append(out, "-I", dir)
	}
	for words := split(text); len(words) > 0; words = words[1:] {
		word := words[0]
		bare := strings.ReplaceAll(word, `"`, "") // as the compiler sees it
		switch {
		case strings.HasPrefix(bare, "-I"):
			if word == "-I" && len(words) > 1 {
				words = words[1:]
			}
			if len(dirs) == 0 {
				return "", false
			}
			include(dirs[0])
			dirs = dirs[1:]
		case strings.HasPrefix(bare, "@"), strings.HasPrefix(bare, "-include"), strings.HasPrefix(bare, "-imacros"):
			return "", false
		default:
			out = append(out, word)
		}
	}
	for _, dir := range dirs {
		include(dir)
	}
	return strings.Join(out, " "), true
}

// split returns the options, in which quotes may hold spaces.
func split(text string) []string {
	quoted := false
	return strings.FieldsFunc(text, func(r rune) bool {
		if r == '"' {
			quoted = !quoted
		}
		return !quoted && strings.ContainsRune(" \t\n\v\f\r", r)
	})
}

// unpacking has one build at a time that has header files: it changes the
// process's folder, so that the compiler's options, by which drivers know what
// they have built before, are the same each time.
var unpacking sync.Mutex

// unpack puts the files below the process's folder, until done is called.
func (h headers) unpack() (done func(), err error) {
	if len(h.files) == 0 {
		return func() {}, nil
	}
	unpacking.Lock()
	dir, err := os.MkdirTemp("", "yunhe-pool-headers-")
	done = func() {
		_ = os.Chdir("/") // nothing else of a worker depends on it
		_ = os.RemoveAll(dir)
		unpacking.Unlock()
	}
	for _, f := range h.files {
		if err == nil {
			err = os.MkdirAll(filepath.Join(dir, filepath.Dir(f.path)), 0o700)
		}
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, f.path), f.text, 0o600)
		}
	}
	if err == nil {
		err = os.Chdir(dir)
	}
	if err != nil {
		done()
	}
	return done, err
}
