package registry

import "slices"

// ServiceTypes are the kinds of job a specification can support.
func ServiceTypes() []string { return slices.Clone(serviceTypes) }
