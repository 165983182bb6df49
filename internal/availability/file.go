package availability

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"regexp"

	"go.yaml.in/yaml/v3"

	"yunhe.dev/yunhe/internal/fault"
)

// MaxFile is the largest file read, in bytes: room for MaxAll submodules.
const MaxFile = 128 << 20

// unknown is how the library words a name that is not known.
var unknown = regexp.MustCompile(`field (\S+) not found in type \S+`)

// Decode reads a system from YAML or JSON and checks it. Names that are not
// known, and anything after the first document, are refused.
func Decode(data []byte) (*System, error) {
	if len(data) > MaxFile {
		return nil, fault.New(fault.Invalid, "the file must be at most %d bytes, got %d", MaxFile, len(data))
	}
	s := &System{}
	// Large systems are written by programs, as JSON: YAML takes ten times as long.
	if !json.Valid(data) || decodeJSON(data, s) != nil {
		*s = System{}
		dec := yaml.NewDecoder(bytes.NewReader(data))
		dec.KnownFields(true)
		if err := dec.Decode(s); err != nil {
			if errors.Is(err, io.EOF) {
				return nil, fault.New(fault.Invalid, "the file is empty; it needs modules")
			}
			return nil, fault.New(fault.Invalid, "the file cannot be read: %s", unknown.ReplaceAllString(err.Error(), `unknown member "$1"`))
		}
		if err := dec.Decode(&yaml.Node{}); !errors.Is(err, io.EOF) {
			return nil, fault.New(fault.Invalid, "the file holds more than one document")
		}
	}
	if err := s.Check(); err != nil {
		return nil, err
	}
	return s, nil
}

func decodeJSON(data []byte, s *System) error {
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	return dec.Decode(s)
}
