package pool

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
)

// A device has its name for good, as what was set for it goes by that. A node's folder says
// which device had which, those too that are not there now: their names are nobody else's.

const (
	// namesFile is in a node's folder.
	namesFile = "devices.json"
	// mostNames is how many it has, of those that are gone; those named first are forgotten first.
	mostNames = 1024
)

// named is what a device with a name is known by.
type named struct {
	ID    string `json:"id"`
	API   string `json:"api"`
	Kind  string `json:"kind"`
	Model string `json:"model"`
	Maker string `json:"maker"`
	Bus   string `json:"bus,omitempty"`
	UUID  string `json:"uuid,omitempty"`
}

func nameOf(f Device) named {
	return named{ID: f.ID, API: f.API, Kind: kindOf(f), Model: modelOf(f), Maker: f.Vendor + " " + f.Type, Bus: f.Bus, UUID: f.UUID}
}

// sameDevice is what two have in common of which one is the other: the first that holds of any
// two. After the third it is another card in the same place, or another version of the same driver.
var sameDevice = []func(a, b named) bool{
	func(a, b named) bool { return a.Kind == b.Kind && a.UUID != "" && a.UUID == b.UUID },
	func(a, b named) bool { return a.Kind == b.Kind && a.Bus == b.Bus },
	func(a, b named) bool { return a.Kind == b.Kind && (a.UUID == "" || b.UUID == "") }, // buses are numbered anew when cards are put in
	func(a, b named) bool { return a.Model == b.Model && a.Bus == b.Bus },
	func(a, b named) bool { return a.Bus != "" && a.Bus == b.Bus },
	func(a, b named) bool { return a.Bus == "" && b.Bus == "" && a.Maker == b.Maker },
}

// readNames finds out which names devices had. The names are of who looks for devices.
func (n *Node) readNames() {
	b, err := os.ReadFile(filepath.Join(n.cfg.Dir, namesFile))
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	if err == nil {
		err = json.Unmarshal(b, &n.names)
	}
	if err != nil {
		n.names = nil
		n.log.Warn("devices are numbered anew: which had which name cannot be read", "error", err)
	}
}

// name gives names to those of what was found that have none: the ones that they had, or new
// ones. The caller has the lock.
func (n *Node) name(found []Device, is []*device) {
	known := func(id string) bool {
		return slices.ContainsFunc(n.devices, func(d *device) bool { return d.ID == id }) || slices.ContainsFunc(found, func(f Device) bool { return f.ID == id })
	}
	for _, same := range sameDevice {
		for at := range found {
			f := &found[at]
			if is[at] != nil || f.ID != "" {
				continue
			}
			i := slices.IndexFunc(n.names, func(o named) bool { return o.API == f.API && !known(o.ID) && same(nameOf(*f), o) })
			if i >= 0 {
				f.ID = n.names[i].ID
			}
		}
	}
	for at := range found {
		f := &found[at]
		if is[at] != nil {
			f.ID = is[at].ID
		}
		if f.ID == "" {
			f.ID = freeID(f.API, func(id string) bool {
				return known(id) || slices.ContainsFunc(n.names, func(o named) bool { return o.ID == id })
			})
		}
	}
	for _, f := range found {
		if i := slices.IndexFunc(n.names, func(o named) bool { return o.ID == f.ID }); i >= 0 {
			n.names[i] = nameOf(f)
		} else {
			n.names = append(n.names, nameOf(f))
		}
	}
	for len(n.names) > mostNames {
		i := slices.IndexFunc(n.names, func(o named) bool { return !known(o.ID) })
		if i < 0 {
			break
		}
		n.names = slices.Delete(n.names, i, i+1)
	}
}

// keepNames has the next start find them.
func (n *Node) keepNames() {
	b, err := json.MarshalIndent(n.names, "", "\t")
	if err == nil {
		err = put(filepath.Join(n.cfg.Dir, namesFile), append(b, '\n'), 0o600)
	}
	if err != nil {
		n.log.Warn("devices may have other names when the node starts anew", "error", err)
	}
}
