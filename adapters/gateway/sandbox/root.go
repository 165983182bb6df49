package sandbox

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"yunhe.dev/yunhe/adapters/gateway/sandbox/runner"
	"yunhe.dev/yunhe/internal/fault"
)

// skeletonBytes is the room the sandbox's own small files take up on the
// root tmpfs, beyond what the command may use.
const skeletonBytes = 64 << 10

// hostTop are the host's folders a command without image sees: its programs.
// Everything absent here does not exist for it: data, homes, /var, /run,
// /opt, /mnt, /srv and the host's /tmp.
var hostTop = []string{"/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/usr"}

// hostEtc are the parts of /etc programs need to start, to verify
// certificates and to draw text. None holds a secret. Each costs every start
// some 30 microseconds.
var hostEtc = []string{
	"/etc/ld.so.cache", "/etc/alternatives", "/etc/localtime", "/etc/os-release", "/etc/ssl/certs", "/etc/ssl/openssl.cnf",
	"/etc/pki/tls/certs", "/etc/pki/ca-trust/extracted", "/etc/protocols", "/etc/services", "/etc/fonts", "/etc/OpenCL",
}

// hostPath splits an entry of Config.HostPaths: where the folder is on the
// host, and where commands see it.
func hostPath(p string) (source, path string) {
	source, path, ok := strings.Cut(p, "=")
	if !ok {
		path = source
	}
	return source, path
}

// hostRoot lists what a command without image finds in its root.
func hostRoot(extra []string, network bool) ([]runner.Node, error) {
	var nodes []runner.Node
	for _, list := range [][]string{hostTop, extra, hostEtc} {
		for _, p := range list {
			n, err := node(hostPath(p))
			if errors.Is(err, fs.ErrNotExist) {
				continue
			}
			if err != nil {
				return nil, err
			}
			nodes = append(nodes, n)
		}
	}
	// Java does not start without its settings, which carry its version.
	java, err := filepath.Glob("/etc/java-*")
	if err != nil {
		return nil, err
	}
	for _, d := range java {
		nodes = append(nodes, runner.Node{Path: d, Bind: d, Optional: true})
	}
	nodes = append(nodes, runner.Node{Path: "/etc/nsswitch.conf", Data: "passwd: files\ngroup: files\nhosts: files dns\n"})
	if network {
		nodes = append(nodes, runner.Node{Path: "/etc/resolv.conf", Bind: "/etc/resolv.conf", Optional: true})
	}
	return append(nodes, runner.Node{Path: "/var/tmp", Link: "/tmp"}), nil
}

// imageRoot lists what a command with an image finds: the image's top
// folders, each read-only, but for those the sandbox provides itself.
func imageRoot(dir string, network bool) ([]runner.Node, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fault.Wrap(fault.Invalid, err, "rootfs: image folder %q cannot be read", dir)
	}
	var nodes []runner.Node
	for _, e := range entries {
		switch e.Name() {
		case "proc", "dev", "sys", "tmp", "run", "lost+found", filepath.Base(runner.Dir), ".shm", ".empty", ".dockerenv":
			continue
		}
		n, err := node(filepath.Join(dir, e.Name()), "/"+e.Name())
		if err != nil {
			return nil, err
		}
		nodes = append(nodes, n)
	}
	if len(nodes) == 0 {
		return nil, fault.New(fault.Invalid, "rootfs: image folder %q is empty", dir)
	}
	// The image's own resolver settings name its builder's network. A link
	// could lead out of the image: leave it alone.
	if resolv := filepath.Join(dir, "etc/resolv.conf"); network && regularBelow(dir, "etc", "resolv.conf") {
		nodes = append(nodes, runner.Node{Path: strings.TrimPrefix(resolv, dir), Bind: "/etc/resolv.conf", Optional: true})
	}
	return nodes, nil
}

// regularBelow tells whether dir/sub is a folder and dir/sub/name a regular
// file, neither through a link.
func regularBelow(dir, sub, name string) bool {
	d, err := os.Lstat(filepath.Join(dir, sub))
	if err != nil || !d.IsDir() {
		return false
	}
	f, err := os.Lstat(filepath.Join(dir, sub, name))
	return err == nil && f.Mode().IsRegular()
}

// node shows source at path: a link as a link, if what it names will be
// visible, anything else as a read-only mount.
func node(source, path string) (runner.Node, error) {
	st, err := os.Lstat(source)
	if err != nil {
		return runner.Node{}, err
	}
	if st.Mode()&fs.ModeSymlink == 0 {
		return runner.Node{Path: path, Bind: source, Optional: strings.HasPrefix(path, "/etc/")}, nil
	}
	to, err := os.Readlink(source)
	if err != nil {
		return runner.Node{}, err
	}
	if source != path {
		return runner.Node{Path: path, Link: to}, nil // an image's: resolved inside it
	}
	full, err := filepath.EvalSymlinks(source)
	if err != nil {
		return runner.Node{}, err // dangling: reported as not existing
	}
	for _, top := range hostTop {
		if strings.HasPrefix(full, top+"/") || full == top {
			return runner.Node{Path: path, Link: to}, nil
		}
	}
	return runner.Node{Path: path, Bind: full, Optional: true}, nil
}

// maxAccounts bounds a list of users or groups of an image, in bytes.
const maxAccounts = 16 << 10

// imageAccounts gives the command's user a name in the image's own lists: that
// of the image's user, or "yunhe". Programs that ask who they are fail without.
// Lists that are not there, or large, are left as they are.
func imageAccounts(dir, user string, uid uint32) []runner.Node {
	name, _, _ := strings.Cut(user, ":")
	if strings.Trim(name, "0123456789") == "" || name == "root" || strings.ContainsAny(name, "\n/") || len(name) > 32 {
		name = "yunhe"
	}
	var nodes []runner.Node
	for _, list := range []struct{ file, line string }{
		{"passwd", fmt.Sprintf("%s:x:%d:%d:job:%s:/bin/sh\n", name, uid, uid, runner.Dir)},
		{"group", fmt.Sprintf("%s:x:%d:\n", name, uid)},
	} {
		if !regularBelow(dir, "etc", list.file) {
			continue
		}
		b, err := os.ReadFile(filepath.Join(dir, "etc", list.file))
		if err != nil || len(b) > maxAccounts {
			continue
		}
		text := list.line
		for l := range strings.Lines(string(b)) {
			if !strings.HasPrefix(l, name+":") {
				text += strings.TrimSuffix(l, "\n") + "\n"
			}
		}
		nodes = append(nodes, runner.Node{Path: "/etc/" + list.file, Data: text, Over: true})
	}
	return nodes
}

// accounts are the files that tell a program without image who and where it is.
func accounts(uid uint32, host string, own bool) []runner.Node {
	if !own {
		return nil
	}
	return []runner.Node{
		{Path: "/etc/passwd", Data: fmt.Sprintf("root:x:0:0:root:/:/usr/sbin/nologin\nnobody:x:65534:65534:nobody:/:/usr/sbin/nologin\n"+
			"yunhe:x:%d:%d:job:%s:/bin/sh\n", uid, uid, runner.Dir)},
		{Path: "/etc/group", Data: fmt.Sprintf("root:x:0:\nnogroup:x:65534:\nyunhe:x:%d:\n", uid)},
		{Path: "/etc/hosts", Data: "127.0.0.1 localhost " + host + "\n::1 localhost\n"},
		{Path: "/etc/hostname", Data: host + "\n"},
	}
}

func sortedPairs(m map[string]string) []string {
	var out []string
	for _, k := range slices.Sorted(maps.Keys(m)) {
		out = append(out, k+"="+m[k])
	}
	return out
}
