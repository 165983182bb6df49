package app

import (
	"slices"
	"strings"
)

// The roles a process can run. All code is in every process; roles choose
// which loops run and whether the API answers.
const (
	// API answers users, programs and the console.
	API = "api"
	// Control schedules and keeps the books; once per platform (a lease).
	Control = "control"
	// Reach talks to the centers.
	Reach = "reach"
	// Watch collects metrics; once per platform (a lease).
	Watch = "watch"
)

// Roles lists them all.
var Roles = []string{API, Control, Reach, Watch}

func (c *Config) runs(role string) bool { return len(c.Roles) == 0 || slices.Contains(c.Roles, role) }

// relaysSamples reports whether samples are in the folder of one process of
// several, the one that collects them, and the others reach them over the bus.
func (c *Config) relaysSamples() bool {
	remote := strings.HasPrefix(c.Samples.URL, "http://") || strings.HasPrefix(c.Samples.URL, "https://")
	return len(c.Roles) > 0 && !remote
}
