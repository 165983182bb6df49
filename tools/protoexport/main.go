// Command protoexport writes the third-party .proto files the API imports
// into a folder, printed from the descriptors linked into it. They are in step
// with go.mod and need no registry.
package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/jhump/protoreflect/v2/protoprint"
	"google.golang.org/genproto/googleapis/api/annotations"
	"google.golang.org/protobuf/reflect/protoreflect"
)

func main() {
	if err := export(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "protoexport:", err)
		os.Exit(1)
	}
}

func export(dir string) error {
	files := []protoreflect.FileDescriptor{annotations.File_google_api_annotations_proto, annotations.File_google_api_http_proto}
	for _, f := range files {
		path := filepath.Join(dir, f.Path())
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		text, err := (&protoprint.Printer{}).PrintProtoToString(f)
		if err != nil {
			return fmt.Errorf("print %s: %w", f.Path(), err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}
