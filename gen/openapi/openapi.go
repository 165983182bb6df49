// Package openapi embeds the OpenAPI documents generated from api/.
package openapi

import "embed"

// Files holds one document per service, below yunhe/.
//
//go:embed yunhe
var Files embed.FS
