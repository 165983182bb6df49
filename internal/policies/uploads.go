package policies

import (
	"context"
	"fmt"
	"time"

	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/db"
	"yunhe.dev/yunhe/internal/fault"
)

// Module is a stored version of a module.
type Module struct {
	ID              string
	Version         int64
	SHA256          string
	Size            int64
	Filters, Scores bool
	CreatedAt       time.Time
	CreatedBy       string
	Isolated        bool
	Fault           string
	FaultAt         time.Time
}

func readModules(ctx context.Context, tx *db.Tx, rest string, args ...any) (out []Module, err error) {
	err = tx.Query(ctx, `SELECT module_id, version, sha256, LENGTH(code), filters, scores, created_at, created_by, isolated, fault, fault_at FROM policy_modules WHERE NOT deleted `+rest, args, func(row db.Row) error {
		var m Module
		var created, at int64
		err := row.Scan(&m.ID, &m.Version, &m.SHA256, &m.Size, &m.Filters, &m.Scores, &created, &m.CreatedBy, &m.Isolated, &m.Fault, &at)
		m.CreatedAt, m.FaultAt = db.Time(created), db.Time(at)
		out = append(out, m)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read modules: %w", err)
	}
	return out, nil
}

// getModule returns a module, nil if there is none.
func getModule(ctx context.Context, tx *db.Tx, id string, version int64) (*Module, error) {
	rows, err := readModules(ctx, tx, `AND module_id = $1 AND version = $2`, id, version)
	if err != nil || len(rows) == 0 {
		return nil, err
	}
	return &rows[0], nil
}

func noModule(id string, version int64) error {
	return fault.New(fault.NotFound, "there is no version %d of module %s", version, clip(id))
}

// Upload adds a version of a module; the code of the latest again changes
// nothing. It returns fault.Invalid and fault.Exhausted.
func (s *Service) Upload(ctx context.Context, id string, code []byte) (out Module, err error) {
	err = checkModuleID(id)
	if len(code) == 0 || len(code) > maxCode {
		err = fault.Fields(append(fault.FieldsOf(err), fault.Field{Path: "code", Problem: fmt.Sprintf("must be 1 to %d bytes, got %d", maxCode, len(code))})...)
	}
	if err != nil {
		return out, err
	}
	// Under a version that no module has: what is stored is loaded when used.
	m, err := s.mods.load(ctx, id, 0, code)
	if err != nil {
		return out, err
	}
	defer s.mods.forget(ctx, id, 0)
	filters, scores := m.exports()
	err = s.db.Tx(ctx, func(tx *db.Tx) error {
		rows, err := readModules(ctx, tx, `AND module_id = $1 ORDER BY version DESC LIMIT 1`, id)
		if err != nil {
			return err
		}
		out = Module{ID: id, Version: 1, SHA256: sum(code), Size: int64(len(code)), Filters: filters, Scores: scores, CreatedAt: tx.Now, CreatedBy: core.CallerFrom(ctx).UserID}
		if len(rows) == 1 {
			if rows[0].SHA256 == out.SHA256 { // asked again
				out = rows[0]
				return s.ids.AuditTx(ctx, tx, id)
			}
		}
		last, err := count(ctx, tx, `SELECT COALESCE(MAX(version), 0) FROM policy_modules WHERE module_id = $1`, id)
		if err != nil {
			return err
		}
		out.Version = last + 1
		n, err := count(ctx, tx, `SELECT COUNT(*) FROM policy_modules WHERE NOT deleted`)
		if err != nil {
			return err
		}
		if n >= maxModules {
			return fault.New(fault.Exhausted, "there are %d versions of modules, which is the most; delete some", maxModules)
		}
		err = tx.Insert(ctx, "policy_modules", []string{"module_id", "version", "sha256", "code", "filters", "scores", "created_at", "created_by", "isolated", "fault", "fault_at", "deleted"},
			[][]any{{id, out.Version, out.SHA256, code, filters, scores, db.Micros(tx.Now), out.CreatedBy, false, "", int64(0), false}})
		if err != nil {
			return fmt.Errorf("store module %s: %w", id, err)
		}
		return s.ids.AuditTx(ctx, tx, id)
	})
	return out, err
}

// Modules returns all versions of all modules, by ID and version.
func (s *Service) Modules(ctx context.Context) (out []Module, err error) {
	err = s.db.View(ctx, func(tx *db.Tx) (err error) {
		out, err = readModules(ctx, tx, `ORDER BY module_id, version`)
		return err
	})
	return out, err
}

// Restore lets an isolated module run again. It returns fault.Invalid and
// fault.NotFound.
func (s *Service) Restore(ctx context.Context, id string, version int64) (out Module, err error) {
	if err := checkModule(id, version); err != nil {
		return out, err
	}
	err = s.db.Tx(ctx, func(tx *db.Tx) error {
		m, err := getModule(ctx, tx, id, version)
		if err != nil {
			return err
		}
		if m == nil {
			return noModule(id, version)
		}
		out = *m
		if !m.Isolated {
			return s.ids.AuditTx(ctx, tx, id)
		}
		out.Isolated = false
		if _, err := tx.Exec(ctx, `UPDATE policy_modules SET isolated = FALSE WHERE module_id = $1 AND version = $2`, id, version); err != nil {
			return err
		}
		if err := s.ids.AuditTx(ctx, tx, id); err != nil {
			return err
		}
		return s.bump(ctx, tx)
	})
	return out, err
}

func checkModule(id string, version int64) error {
	var c core.Check
	c.ID("module_id", id)
	c.Range("version", version, 1, 1<<40)
	return c.Err()
}

// DeleteModule deletes a version that nothing in force uses. It returns
// fault.Invalid, fault.NotFound and fault.Conflict.
func (s *Service) DeleteModule(ctx context.Context, id string, version int64) error {
	if err := checkModule(id, version); err != nil {
		return err
	}
	err := s.db.Tx(ctx, func(tx *db.Tx) error {
		m, err := getModule(ctx, tx, id, version)
		if err != nil {
			return err
		}
		if m == nil {
			return noModule(id, version)
		}
		b, err := s.read(ctx, tx)
		if err != nil {
			return err
		}
		if user := b.uses(id, version); user != "" {
			return fault.New(fault.Conflict, "policy %s, which is in force, uses version %d of module %s", user, version, id)
		}
		if _, err := tx.Exec(ctx, `UPDATE policy_modules SET deleted = TRUE, code = $3 WHERE module_id = $1 AND version = $2`, id, version, []byte{}); err != nil {
			return err
		}
		return s.ids.AuditTx(ctx, tx, id)
	})
	if err == nil {
		s.mods.forget(ctx, id, version)
	}
	return err
}

// faulted records a fault of a module, so that every process and person sees
// it.
func (s *Service) faulted(ctx context.Context, m *module, isolate bool, why string) {
	if !isolate {
		s.log.Warn("policy module failed", "module", m.id, "version", m.version, "error", why)
	} else {
		s.log.Error("policy module isolated after faults", "module", m.id, "version", m.version, "error", why)
	}
	err := s.db.Tx(ctx, func(tx *db.Tx) error {
		if _, err := tx.Exec(ctx, `UPDATE policy_modules SET fault = $3, fault_at = $4, isolated = isolated OR $5 WHERE module_id = $1 AND version = $2`,
			m.id, m.version, why, db.Micros(tx.Now), isolate); err != nil {
			return err
		}
		if !isolate {
			return nil
		}
		return s.bump(ctx, tx)
	})
	if err != nil && ctx.Err() == nil {
		s.log.Warn("fault of a module is not recorded", "module", m.id, "error", err)
	}
}
