package routing

import (
	"context"
	"encoding/json"
	"fmt"

	"yunhe.dev/yunhe/internal/db"
	"yunhe.dev/yunhe/internal/fault"
)

func readServices(ctx context.Context, tx *db.Tx, rest string, args ...any) ([]*Service, error) {
	var out []*Service
	err := tx.Query(ctx, `SELECT service_id, tenant_id, name, spec, created_at, updated_at FROM services `+rest, args, func(row db.Row) error {
		s := &Service{}
		var spec string
		var created, updated int64
		if err := row.Scan(&s.ID, &s.TenantID, &s.Name, &spec, &created, &updated); err != nil {
			return err
		}
		s.CreatedAt, s.UpdatedAt = db.Time(created), db.Time(updated)
		out = append(out, s)
		return json.Unmarshal([]byte(spec), s)
	})
	if err != nil {
		return nil, fmt.Errorf("read services: %w", err)
	}
	return out, nil
}

func getService(ctx context.Context, tx *db.Tx, id string) (*Service, error) {
	rows, err := readServices(ctx, tx, `WHERE service_id = $1`, id)
	if err != nil {
		return nil, err
	}
	if len(rows) == 0 {
		return nil, noService(id)
	}
	return rows[0], nil
}

func noService(id string) error { return fault.New(fault.NotFound, "there is no service %s", id) }

// putService stores a service; a name another of the tenant's has is fault.Conflict.
func putService(ctx context.Context, tx *db.Tx, s *Service, requestID, digest string) error {
	var other string
	taken, err := tx.Get(ctx, `SELECT service_id FROM services WHERE tenant_id = $1 AND name = $2 AND service_id <> $3`, []any{s.TenantID, s.Name, s.ID}, &other)
	if err != nil {
		return fmt.Errorf("look for the name: %w", err)
	}
	if taken {
		return fault.Wrap(fault.Conflict, fault.Fields(fault.Field{Path: "service.name", Problem: fmt.Sprintf("is the name of %s", other)}), "a service %q exists already", s.Name)
	}
	spec, err := json.Marshal(s)
	if err != nil {
		return fmt.Errorf("encode service: %w", err)
	}
	_, err = tx.Exec(ctx, `INSERT INTO services (service_id, tenant_id, name, spec, request_id, digest, created_at, updated_at) VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
		ON CONFLICT (service_id) DO UPDATE SET name = $3, spec = $4, updated_at = $8`,
		s.ID, s.TenantID, s.Name, string(spec), requestID, digest, db.Micros(s.CreatedAt), db.Micros(s.UpdatedAt))
	if err != nil {
		return fmt.Errorf("store service %s: %w", s.ID, err)
	}
	return nil
}

func deleteService(ctx context.Context, tx *db.Tx, id string) error {
	for _, table := range []string{"service_routes", "service_origins", "services"} {
		if _, err := tx.Exec(ctx, `DELETE FROM `+table+` WHERE service_id = $1`, id); err != nil {
			return fmt.Errorf("delete service %s: %w", id, err)
		}
	}
	return nil
}

func readOrigins(ctx context.Context, tx *db.Tx, id string) (map[string]*origin, error) {
	out := map[string]*origin{}
	err := tx.Query(ctx, `SELECT origin_id, state FROM service_origins WHERE service_id = $1`, []any{id}, func(row db.Row) error {
		var name, state string
		if err := row.Scan(&name, &state); err != nil {
			return err
		}
		o := &origin{}
		out[name] = o
		return json.Unmarshal([]byte(state), o)
	})
	if err != nil {
		return nil, fmt.Errorf("read origins of %s: %w", id, err)
	}
	return out, nil
}

func putOrigin(ctx context.Context, tx *db.Tx, id, name string, o *origin) error {
	state, err := json.Marshal(o)
	if err != nil {
		return fmt.Errorf("encode origin: %w", err)
	}
	if _, err := tx.Exec(ctx, `INSERT INTO service_origins (service_id, origin_id, state) VALUES ($1, $2, $3) ON CONFLICT (service_id, origin_id) DO UPDATE SET state = $3`, id, name, string(state)); err != nil {
		return fmt.Errorf("store origin %s of %s: %w", name, id, err)
	}
	return nil
}

// readRoutes returns nil if there are none yet.
func readRoutes(ctx context.Context, tx *db.Tx, id string) (*Routes, error) {
	r := &Routes{ServiceID: id}
	var at int64
	var text string
	found, err := tx.Get(ctx, `SELECT generation, made_at, routes FROM service_routes WHERE service_id = $1`, []any{id}, &r.Generation, &at, &text)
	if err != nil || !found {
		return nil, err
	}
	r.MadeAt = db.Time(at)
	if err := json.Unmarshal([]byte(text), r); err != nil {
		return nil, fmt.Errorf("decode routes of %s: %w", id, err)
	}
	return r, nil
}

func putRoutes(ctx context.Context, tx *db.Tx, r *Routes) error {
	text, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("encode routes: %w", err)
	}
	if _, err := tx.Exec(ctx, `INSERT INTO service_routes (service_id, generation, made_at, routes) VALUES ($1, $2, $3, $4)
		ON CONFLICT (service_id) DO UPDATE SET generation = $2, made_at = $3, routes = $4`, r.ServiceID, r.Generation, db.Micros(r.MadeAt), string(text)); err != nil {
		return fmt.Errorf("store routes of %s: %w", r.ServiceID, err)
	}
	return nil
}
