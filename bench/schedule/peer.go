package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// peerBatch jobs are in a transaction of the plain loop.
const peerBatch = 200

// plainSQL is the least that a database does for a job from its submission to
// its dispatch, by one connection in large transactions: a row of the job, then
// in a second transaction a row of its run, the job's row changed, and the room
// of its center taken. It returns jobs per second.
func plainSQL(ctx context.Context, dsn string, centers, jobs int) (perSecond float64, err error) {
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, conn.Close(context.WithoutCancel(ctx))) }()
	for _, q := range []string{
		`CREATE TABLE jobs (id TEXT PRIMARY KEY, spec TEXT NOT NULL, state BIGINT NOT NULL, waiting BIGINT NOT NULL)`,
		`CREATE INDEX jobs_waiting ON jobs (waiting) WHERE state = 0`,
		`CREATE TABLE runs (id TEXT PRIMARY KEY, job TEXT NOT NULL, center BIGINT NOT NULL, at BIGINT NOT NULL)`,
		`CREATE INDEX runs_job ON runs (job)`,
		`CREATE TABLE centers (id BIGINT PRIMARY KEY, used BIGINT NOT NULL)`,
	} {
		if _, err := conn.Exec(ctx, q); err != nil {
			return 0, fmt.Errorf("make tables: %w", err)
		}
	}
	if _, err := conn.Exec(ctx, `INSERT INTO centers SELECT n, 0 FROM generate_series(0, $1 - 1) n`, centers); err != nil {
		return 0, fmt.Errorf("make centers: %w", err)
	}
	spec := make([]byte, 300)
	for i := range spec {
		spec[i] = 'a' + byte(i%26)
	}
	batches := max(jobs/peerBatch, 1)
	begin := time.Now()
	for i := range batches {
		ids, places := make([]string, peerBatch), make([]int64, peerBatch)
		for k := range ids {
			n := i*peerBatch + k
			ids[k], places[k] = fmt.Sprintf("job_%026d", n), int64(n%centers)
		}
		if _, err := conn.Exec(ctx, `INSERT INTO jobs SELECT id, $2, 0, $3 FROM unnest($1::text[]) id`, ids, string(spec), int64(i)); err != nil {
			return 0, fmt.Errorf("insert jobs: %w", err)
		}
		err := pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, `INSERT INTO runs SELECT 'att' || id, id, place, $3 FROM unnest($1::text[], $2::bigint[]) AS x (id, place)`, ids, places, int64(i)); err != nil {
				return err
			}
			if _, err := tx.Exec(ctx, `UPDATE jobs SET state = 1 WHERE id = ANY($1)`, ids); err != nil {
				return err
			}
			_, err := tx.Exec(ctx, `UPDATE centers SET used = used + n FROM (SELECT place, COUNT(*) AS n FROM unnest($1::bigint[]) place GROUP BY place) AS x WHERE centers.id = place`, places)
			return err
		})
		if err != nil {
			return 0, fmt.Errorf("place jobs: %w", err)
		}
	}
	return float64(batches*peerBatch) / time.Since(begin).Seconds(), nil
}
