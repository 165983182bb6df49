package jobs

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/db"
	"yunhe.dev/yunhe/internal/fault"
	"yunhe.dev/yunhe/internal/rpc"
)

// linkTTL is how long a link to a log works: long enough to hand it to a
// download tool, short enough that a leaked one is soon worthless.
const linkTTL = time.Hour

// signingKey returns the key that signs links, making it at the first start.
func signingKey(ctx context.Context, d *db.DB) ([]byte, error) {
	key := make([]byte, 32)
	if _, err := rand.Read(key); err != nil {
		return nil, fmt.Errorf("make signing key: %w", err)
	}
	err := d.Tx(ctx, func(tx *db.Tx) error {
		if _, err := tx.Exec(ctx, `INSERT INTO signing (one, key) VALUES (1, $1) ON CONFLICT (one) DO NOTHING`, key); err != nil {
			return err
		}
		_, err := tx.Get(ctx, `SELECT key FROM signing WHERE one = 1`, nil, &key)
		return err
	})
	return key, err
}

func (s *Service) sign(job string, task, replica int, expires int64) string {
	m := hmac.New(sha256.New, s.key)
	fmt.Fprintf(m, "log %s %d %d %d", job, task, replica, expires)
	return hex.EncodeToString(m.Sum(nil))
}

// logLink is a path that downloads a replica's log without credentials, for
// linkTTL.
func (s *Service) logLink(job string, task, replica int) string {
	expires := s.db.Now().Add(linkTTL).Unix()
	return fmt.Sprintf("/v1/logs/%s/%d/%d?expires=%d&signature=%s", job, task, replica, expires, s.sign(job, task, replica, expires))
}

// signedLog serves logLink. The signature is the permission.
func (h handler) signedLog(w http.ResponseWriter, r *http.Request) error {
	if err := rpc.OnlyParams(r, "expires", "signature"); err != nil {
		return err
	}
	job, q := r.PathValue("id"), r.URL.Query()
	task, err1 := strconv.Atoi(r.PathValue("task"))
	replica, err2 := strconv.Atoi(r.PathValue("replica"))
	expires, err3 := strconv.ParseInt(q.Get("expires"), 10, 64)
	valid := err1 == nil && err2 == nil && err3 == nil && hmac.Equal([]byte(h.s.sign(job, task, replica, expires)), []byte(q.Get("signature")))
	if !valid || h.s.db.Now().Unix() > expires {
		return fault.New(fault.Denied, "the link is not valid or has expired; ask for a new one")
	}
	ctx := core.WithCaller(r.Context(), core.Caller{AllTenants: true})
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("Content-Disposition", fmt.Sprintf(`attachment; filename="%s-%d-%d.log"`, job, task, replica))
	return h.s.readLog(ctx, job, int64(task), int64(replica), 0, 0, false, func(data []byte, _ int64) error {
		_, err := w.Write(data)
		return err
	})
}
