package main

import (
	"testing"

	"google.golang.org/protobuf/proto"

	jobsv1 "yunhe.dev/yunhe/gen/yunhe/jobs/v1"
)

func TestMountFlag(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]*jobsv1.VolumeMount{
		"data:/data":    {Volume: "data", Path: "/data"},
		"vol_1:/a/b:ro": {Volume: "vol_1", Path: "/a/b", ReadOnly: true},
		"data":          nil, ":/data": nil, "data:": nil, "data:/data:rw": nil, "data:/data:ro:x": nil,
	} {
		got, err := mountFlag(in)
		if (err == nil) != (want != nil) || !proto.Equal(got, want) {
			t.Errorf("--volume %s: %v, %v, want %v", in, got, err, want)
		}
	}
}
