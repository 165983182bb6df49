// Package web embeds the built console. The files in dist are made by
// `make build`; without them the package embeds an empty folder.
package web

import "embed"

// Dist holds the built console below dist/.
//
//go:embed all:dist
var Dist embed.FS
