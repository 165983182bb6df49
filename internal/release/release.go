// Package release keeps, in a folder, the programs that a process was upgraded
// to, and which of them it should be.
//
// What it keeps true: a program is there whole, with the SHA-256 it is named by,
// or not at all. A program that was installed by hand after an upgrade is not
// replaced by what it was upgraded to before. A program that ended before it
// proved itself is not started again.
package release

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"yunhe.dev/yunhe/internal/fault"
)

// Folder keeps programs.
type Folder string

// State is what the process should be.
type State struct {
	// Base is the SHA-256 of the program that was installed by hand, Current
	// what the process should be instead and Previous what it was before.
	Base     string `json:"base"`
	Current  string `json:"current"`
	Previous string `json:"previous"`
	Attempt  int64  `json:"attempt"` // at that
	Fresh    bool   `json:"fresh"`   // it has not proved itself
	Problem  string `json:"problem"` // why the attempt failed
}

const (
	stateFile = "state.json"
	// keeps is how many programs are kept beside the current and the previous.
	keeps = 3
	// halfWritten is what a file is called until it is whole; one that is older than
	// lost was left by who was killed.
	halfWritten = "new-"
	lost        = time.Hour
)

// Path is where a program is, if it is there.
func (f Folder) Path(sum string) string { return filepath.Join(string(f), sum) }

// Has reports whether a program is there, whole.
func (f Folder) Has(sum string) bool {
	got, err := Sum(f.Path(sum))
	return err == nil && got == sum
}

// State reads it; nothing was upgraded if there is none.
func (f Folder) State() (State, error) {
	var s State
	b, err := os.ReadFile(filepath.Join(string(f), stateFile))
	if errors.Is(err, fs.ErrNotExist) {
		return s, nil
	}
	if err == nil {
		err = json.Unmarshal(b, &s)
	}
	if err != nil {
		return s, fault.Wrap(fault.Invalid, err, "%s cannot be read", filepath.Join(string(f), stateFile))
	}
	return s, nil
}

// Save writes the state, and deletes programs that are not needed any more.
func (f Folder) Save(s State) error {
	b, err := json.Marshal(s)
	if err == nil {
		err = f.write(stateFile, 0o600, func(w io.Writer) error { _, err := w.Write(b); return err })
	}
	if err != nil {
		return fault.Wrap(fault.Unavailable, err, "%s cannot be written", filepath.Join(string(f), stateFile))
	}
	return f.prune(s)
}

func (f Folder) prune(s State) error {
	list, err := os.ReadDir(string(f))
	if err != nil {
		return err
	}
	var old []fs.FileInfo
	for _, e := range list {
		info, err := e.Info()
		if err == nil && strings.HasPrefix(e.Name(), halfWritten) && time.Since(info.ModTime()) > lost {
			_ = os.Remove(f.Path(e.Name())) // as below
		}
		if err == nil && len(e.Name()) == 2*sha256.Size && !slices.Contains([]string{s.Base, s.Current, s.Previous}, e.Name()) {
			old = append(old, info)
		}
	}
	slices.SortFunc(old, func(a, b fs.FileInfo) int { return b.ModTime().Compare(a.ModTime()) })
	for _, info := range old[min(keeps, len(old)):] {
		_ = os.Remove(f.Path(info.Name())) // it costs space only
	}
	return nil
}

// write puts a file in its place, whole.
func (f Folder) write(name string, mode fs.FileMode, fill func(io.Writer) error) error {
	if err := os.MkdirAll(string(f), 0o700); err != nil {
		return err
	}
	file, err := os.CreateTemp(string(f), halfWritten)
	if err != nil {
		return err
	}
	defer os.Remove(file.Name()) // or it is in its place
	err = errors.Join(fill(file), file.Chmod(mode), file.Sync(), file.Close())
	if err != nil {
		return err
	}
	return os.Rename(file.Name(), f.Path(name))
}

// Add keeps what r has, which must be the program with the SHA-256.
func (f Folder) Add(sum string, r io.Reader) error {
	return f.write(sum, 0o700, func(w io.Writer) error {
		h := sha256.New()
		if _, err := io.Copy(io.MultiWriter(w, h), r); err != nil {
			return err
		}
		if got := hex.EncodeToString(h.Sum(nil)); got != sum {
			return fault.New(fault.Invalid, "the program's SHA-256 is %s, not %s", got, sum)
		}
		return nil
	})
}

// Upgrade keeps the program that the process is, and notes that it should be
// another, which is there, from now on. Nothing is started.
func (f Folder) Upgrade(self, to string, attempt int64) error {
	s, err := f.State()
	if err != nil {
		return err
	}
	if !f.Has(self) {
		if err := f.keep(self); err != nil {
			return fmt.Errorf("keep this program: %w", err)
		}
	}
	if s.Current != self {
		s.Base = self
	}
	s.Current, s.Previous, s.Attempt, s.Fresh, s.Problem = to, self, attempt, true, ""
	return f.Save(s)
}

// keep adds the program that this process is.
func (f Folder) keep(self string) error {
	exe, err := executable()
	if err != nil {
		return err
	}
	file, err := os.Open(exe)
	if err != nil {
		return err
	}
	defer file.Close()
	return f.Add(self, file)
}

// Fail notes that the process is again what it was before an upgrade.
func (f Folder) Fail(why string) error {
	s, err := f.State()
	if err != nil {
		return err
	}
	s.Current, s.Fresh, s.Problem = s.Previous, false, why
	return f.Save(s)
}

// Proved notes that an upgrade went well.
func (f Folder) Proved() error {
	s, err := f.State()
	if err != nil || !s.Fresh {
		return err
	}
	s.Fresh = false
	return f.Save(s)
}

// Successor is the program that a process that starts with the program self
// should be; "": that.
func (f Folder) Successor(self string) (string, error) {
	s, err := f.State()
	if err != nil || s.Base == "" || self != s.Base {
		return "", err
	}
	if s.Fresh && s.Current != self {
		if err := f.Fail("it ended before it had proved itself"); err != nil {
			return "", err
		}
		s.Current = s.Previous
	}
	if s.Current == self || !f.Has(s.Current) {
		return "", nil
	}
	return f.Path(s.Current), nil
}

// Sum is the SHA-256 of a file, in hexadecimal.
func Sum(path string) (string, error) {
	file, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer file.Close()
	h := sha256.New()
	if _, err := io.Copy(h, file); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// Self is the SHA-256 of the program that this process is.
func Self() (string, error) {
	exe, err := executable()
	if err != nil {
		return "", err
	}
	return Sum(exe)
}

// executable is where the program that this process is can be read.
func executable() (string, error) {
	const running = "/proc/self/exe" // also if its file was replaced
	if _, err := os.Stat(running); err == nil {
		return running, nil
	}
	exe, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("find this program: %w", err)
	}
	return exe, nil
}
