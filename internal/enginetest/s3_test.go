package enginetest_test

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"io"
	"testing"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"yunhe.dev/yunhe/internal/enginetest"
)

func TestS3(t *testing.T) {
	t.Parallel()
	cfg := enginetest.S3(t)
	client := func(secret string) *minio.Client {
		c, err := minio.New(cfg.Endpoint, &minio.Options{Region: cfg.Region, Creds: credentials.NewStaticV4(cfg.AccessKey, secret, "")})
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	c, bucket, key := client(cfg.SecretKey), "data-sets", "目录/object.bin"
	if err := c.MakeBucket(t.Context(), bucket, minio.MakeBucketOptions{Region: cfg.Region}); err != nil {
		t.Fatal(err)
	}
	body := make([]byte, 11<<20) // three parts of 5 MiB, the last one short
	if _, err := rand.Read(body); err != nil {
		t.Fatal(err)
	}
	if _, err := c.PutObject(t.Context(), bucket, key, bytes.NewReader(body), int64(len(body)), minio.PutObjectOptions{PartSize: 5 << 20}); err != nil {
		t.Fatal(err)
	}
	object, err := c.GetObject(t.Context(), bucket, key, minio.GetObjectOptions{})
	if err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(object)
	if err != nil || sha256.Sum256(got) != sha256.Sum256(body) {
		t.Errorf("read %d bytes back, %v, want the %d written", len(got), err, len(body))
	}
	if _, err := client("wrong").StatObject(t.Context(), bucket, key, minio.StatObjectOptions{}); err == nil {
		t.Error("a wrong secret key was accepted")
	}
}
