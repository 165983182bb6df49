package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// defaultServer is where `yunhe up` listens.
const defaultServer = "http://127.0.0.1:8180"

// target is the server to call, with what to show about where it comes from.
type target struct {
	server, source string
	key, keySource string
}

// local tells whether the server is on this machine.
func (t target) local() bool {
	u, err := url.Parse(t.server)
	if err != nil {
		return false
	}
	ip := net.ParseIP(u.Hostname())
	return u.Hostname() == "localhost" || (ip != nil && ip.IsLoopback())
}

// target finds the server and the key for it. A key saved in a context goes
// to that context's server only, and the admin.key of a data folder only to a
// server on this machine: no key reaches a server it was not made for because
// one flag was left out.
func (c *cli) target() (target, error) {
	conf, err := c.loadConfig()
	if err != nil {
		return target{}, err
	}
	t := target{server: defaultServer, source: "the default"}
	var saved *contextEntry
	if name := c.contextName(conf); name != "" {
		if saved = conf.find(name); saved == nil {
			return target{}, &hinted{fmt.Errorf("no context %q in %s", name, c.configPath()), "`yunhe context list` shows the contexts"}
		}
	}
	switch {
	case c.flags.server != "":
		t.server, t.source, saved = c.flags.server, "--server", nil
	case c.flags.context == "" && c.env("YUNHE_SERVER") != "":
		t.server, t.source, saved = c.env("YUNHE_SERVER"), "YUNHE_SERVER", nil
	case saved != nil:
		t.server, t.source = saved.Server, fmt.Sprintf("context %q", saved.Name)
	}
	if t.server, err = cleanServer(t.server); err != nil {
		return target{}, usagef("%s: %v", t.source, err)
	}
	return t, c.findKey(&t, saved)
}

func (c *cli) contextName(conf *config) string {
	if c.flags.context != "" {
		return c.flags.context
	}
	if name := c.env("YUNHE_CONTEXT"); name != "" {
		return name
	}
	return conf.Current
}

func (c *cli) findKey(t *target, saved *contextEntry) error {
	switch {
	case c.flags.key != "":
		t.key, t.keySource = c.flags.key, "--key"
	case c.flags.context == "" && c.env("YUNHE_KEY") != "":
		t.key, t.keySource = c.env("YUNHE_KEY"), "YUNHE_KEY"
	case saved != nil && saved.Key != "":
		t.key, t.keySource = saved.Key, t.source
	case t.local():
		return c.adminKey(t)
	}
	key, err := expandKey(t.key)
	if err != nil {
		return usagef("%s: %v", t.keySource, err)
	}
	t.key = key
	return nil
}

// expandKey reads @FILE and refuses what cannot stand in a header.
func expandKey(key string) (string, error) {
	if path, ok := strings.CutPrefix(key, "@"); ok {
		data, err := readSmall(path)
		if err != nil {
			return "", err
		}
		key = string(data)
	}
	key = strings.TrimSpace(key)
	if i := strings.IndexFunc(key, func(r rune) bool { return r <= ' ' || r > '~' }); i >= 0 {
		return "", fmt.Errorf("a key has no spaces, line breaks or special characters; character %d is one", i+1)
	}
	return key, nil
}

// adminKey uses the key a server on this machine left in its data folder.
func (c *cli) adminKey(t *target) error {
	folder := c.env("YUNHE_DATA")
	if folder == "" {
		folder = "data"
	}
	path := filepath.Join(folder, "admin.key")
	data, err := readSmall(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // the server will say if it wants a key
	}
	if err != nil {
		return &hinted{fmt.Errorf("cannot read the key of the local server: %w", err), "give a key with --key or YUNHE_KEY"}
	}
	if t.key, err = expandKey(strings.TrimPrefix(string(data), "@")); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	t.keySource = path
	return nil
}

func readSmall(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, 64<<10))
}

// cleanServer checks the address of a server and returns it without a
// trailing slash. An address without scheme is http on this machine and https
// elsewhere.
func cleanServer(s string) (string, error) {
	full := strings.TrimSpace(s)
	if !strings.Contains(full, "://") {
		scheme := "https://"
		if (target{server: "http://" + full}).local() {
			scheme = "http://"
		}
		full = scheme + full
	}
	u, err := url.Parse(full)
	if err != nil || u.Hostname() == "" || (u.Scheme != "http" && u.Scheme != "https") || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return "", fmt.Errorf("want an address such as https://yunhe.example.com, got %q", s)
	}
	return strings.TrimRight(u.String(), "/"), nil
}

// config is the file with the saved contexts.
type config struct {
	Current  string         `yaml:"current,omitempty"`
	Contexts []contextEntry `yaml:"contexts"`
}

type contextEntry struct {
	Name   string `yaml:"name"`
	Server string `yaml:"server"`
	Key    string `yaml:"key,omitempty"`
}

func (c *config) find(name string) *contextEntry {
	i := slices.IndexFunc(c.Contexts, func(e contextEntry) bool { return e.Name == name })
	if i < 0 {
		return nil
	}
	return &c.Contexts[i]
}

// configPath is where the contexts are: YUNHE_CONFIG, else
// yunhe/config.yaml in XDG_CONFIG_HOME, else in ~/.config.
func (c *cli) configPath() string {
	if p := c.env("YUNHE_CONFIG"); p != "" {
		return p
	}
	folder := c.env("XDG_CONFIG_HOME")
	if folder == "" {
		folder = filepath.Join(c.env("HOME"), ".config")
	}
	return filepath.Join(folder, "yunhe", "config.yaml")
}

func (c *cli) loadConfig() (*config, error) {
	conf := &config{}
	f, err := os.Open(c.configPath())
	if errors.Is(err, fs.ErrNotExist) {
		return conf, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the contexts: %w", err)
	}
	defer f.Close()
	c.warnOpen(c.configPath(), "keys")
	dec := yaml.NewDecoder(f)
	dec.KnownFields(true)
	if err := dec.Decode(conf); err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%s: %w", c.configPath(), err)
	}
	return conf, nil
}

// warnOpen warns of a file with secrets that others may read.
func (c *cli) warnOpen(path, secrets string) {
	if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() && info.Mode().Perm()&0o077 != 0 {
		fmt.Fprintf(c.err, "warning: %s holds %s and others may read it; run `chmod 600 %[1]s`\n", path, secrets)
	}
}

// saveConfig replaces the file in one step, readable by its owner only.
func (c *cli) saveConfig(conf *config) error {
	path := c.configPath()
	data, err := yaml.Marshal(conf)
	if err != nil {
		return fmt.Errorf("encode the contexts: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return fmt.Errorf("save the contexts: %w", err)
	}
	tmp, err := os.CreateTemp(filepath.Dir(path), ".config-*") // made with mode 0600
	if err != nil {
		return fmt.Errorf("save the contexts: %w", err)
	}
	defer os.Remove(tmp.Name())
	_, err = tmp.Write(data)
	err = errors.Join(err, tmp.Sync(), tmp.Close())
	if err == nil {
		err = os.Rename(tmp.Name(), path)
	}
	if err != nil {
		return fmt.Errorf("save the contexts: %w", err)
	}
	return nil
}
