package poolops

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"time"

	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/db"
	"yunhe.dev/yunhe/internal/fault"
)

// Release is a program that nodes can be upgraded to.
type Release struct {
	Sum        string // SHA-256
	Version    string
	Bytes      int64
	UploadedAt time.Time
}

const (
	maxRelease   = 1 << 30
	maxPart      = 1 << 20
	keepReleases = 10
)

func checkSum(c *core.Check, path, sum string) {
	if b, err := hex.DecodeString(sum); err != nil || len(b) != sha256.Size || hex.EncodeToString(b) != sum {
		c.Add(path, "must be a SHA-256 of 64 hexadecimal digits in lower case, got %q", start(sum))
	}
}

// start is what is shown of what may be of any length.
func start(s string) string { return s[:min(len(s), 80)] }

func releaseKey(sum string) string { return "pool/releases/" + sum }

// Upload takes a part of a program, and the whole once it is all there. It says
// how much there is.
func (s *Service) Upload(ctx context.Context, r Release, offset int64, content []byte) (received int64, whole *Release, err error) {
	var c core.Check
	checkSum(&c, "sha256", r.Sum)
	c.Text("version", r.Version, true, 64, 0)
	c.Range("bytes", r.Bytes, 1, maxRelease)
	c.Range("offset", offset, 0, r.Bytes)
	c.Range("content", int64(len(content)), 0, maxPart)
	if err := c.Err(); err != nil {
		return 0, nil, err
	}
	if offset+int64(len(content)) > r.Bytes {
		return 0, nil, fault.Fields(fault.Field{Path: "content", Problem: fmt.Sprintf("ends at %d, the program has %d bytes", offset+int64(len(content)), r.Bytes)})
	}
	known, err := s.release(ctx, r.Sum)
	if err == nil {
		return known.Bytes, known, nil
	}
	if fault.KindOf(err) != fault.NotFound {
		return 0, nil, err
	}
	if len(content) == 0 {
		received, err = s.blobs.Size(ctx, releaseKey(r.Sum))
	} else {
		received, err = s.blobs.Append(ctx, releaseKey(r.Sum), offset, content)
	}
	if err != nil || received < r.Bytes {
		return received, nil, err
	}
	if err := s.verify(ctx, r); err != nil {
		return 0, nil, err
	}
	err = s.db.Tx(ctx, func(tx *db.Tx) error {
		r.UploadedAt = tx.Now
		if _, err := tx.Exec(ctx, `INSERT INTO pool_releases (sha256, version, bytes, uploaded_at) VALUES ($1, $2, $3, $4) ON CONFLICT (sha256) DO NOTHING`, r.Sum, r.Version, r.Bytes, db.Micros(r.UploadedAt)); err != nil {
			return fmt.Errorf("store release %s: %w", r.Sum, err)
		}
		return s.ids.AuditTx(ctx, tx, r.Version+" "+r.Sum)
	})
	return received, &r, err
}

// verify compares what was uploaded with its SHA-256, and forgets it if it is not that.
func (s *Service) verify(ctx context.Context, r Release) error {
	f, err := s.blobs.Read(ctx, releaseKey(r.Sum), 0)
	if err != nil {
		return err
	}
	defer f.Close()
	h := sha256.New()
	n, err := io.Copy(h, f)
	if err != nil {
		return err
	}
	if got := hex.EncodeToString(h.Sum(nil)); got != r.Sum || n != r.Bytes {
		if err := s.blobs.Delete(ctx, releaseKey(r.Sum)); err != nil {
			return err
		}
		return fault.Fields(fault.Field{Path: "sha256", Problem: fmt.Sprintf("is that of other contents: %d bytes with SHA-256 %s were uploaded, and are deleted", n, got)})
	}
	return nil
}

func (s *Service) release(ctx context.Context, sum string) (*Release, error) {
	list, err := s.Releases(ctx)
	if err != nil {
		return nil, err
	}
	for _, r := range list {
		if r.Sum == sum {
			return r, nil
		}
	}
	return nil, fault.New(fault.NotFound, "there is no program with the SHA-256 %q; see yunhe pool upgrade releases", start(sum))
}

// Releases lists them, newest first.
func (s *Service) Releases(ctx context.Context) (out []*Release, err error) {
	err = s.db.View(ctx, func(tx *db.Tx) error {
		out, err = releasesTx(ctx, tx)
		return err
	})
	return out, err
}

func releasesTx(ctx context.Context, tx *db.Tx) (out []*Release, err error) {
	err = tx.Query(ctx, `SELECT sha256, version, bytes, uploaded_at FROM pool_releases ORDER BY uploaded_at DESC, sha256`, nil, func(row db.Row) error {
		r := &Release{}
		var at int64
		if err := row.Scan(&r.Sum, &r.Version, &r.Bytes, &at); err != nil {
			return err
		}
		r.UploadedAt = db.Time(at)
		out = append(out, r)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read releases: %w", err)
	}
	return out, nil
}

// Fetch gives a node a part of a program; none at its end.
func (s *Service) Fetch(ctx context.Context, node, secret, sum string, offset int64) ([]byte, error) {
	var c core.Check
	c.ID("node_id", node)
	checkSum(&c, "sha256", sum)
	c.Range("offset", offset, 0, maxRelease)
	if err := c.Err(); err != nil {
		return nil, err
	}
	if err := s.db.View(ctx, func(tx *db.Tx) error { return s.pools.KnownTx(ctx, tx, node, secret) }); err != nil {
		return nil, err
	}
	r, err := s.release(ctx, sum)
	if err != nil || offset >= r.Bytes {
		return nil, err
	}
	f, err := s.blobs.Read(ctx, releaseKey(sum), offset)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var part bytes.Buffer
	_, err = io.CopyN(&part, f, min(maxPart, r.Bytes-offset))
	return part.Bytes(), err
}

// pruneReleases deletes all but the newest, and those that an upgrade needs.
func (s *Service) pruneReleases(ctx context.Context) error {
	var old []string
	err := s.db.Tx(ctx, func(tx *db.Tx) error {
		old = nil
		list, err := releasesTx(ctx, tx)
		if err != nil || len(list) <= keepReleases {
			return err
		}
		x, err := runningTx(ctx, tx)
		if err != nil {
			return err
		}
		for _, r := range list[keepReleases:] {
			if x != nil && x.Release.Sum == r.Sum {
				continue
			}
			if _, err := tx.Exec(ctx, `DELETE FROM pool_releases WHERE sha256 = $1`, r.Sum); err != nil {
				return fmt.Errorf("forget release %s: %w", r.Sum, err)
			}
			old = append(old, r.Sum)
		}
		return nil
	})
	for _, sum := range old {
		if e := s.blobs.Delete(ctx, releaseKey(sum)); err == nil {
			err = e
		}
	}
	return err
}
