package equipment

import (
	"context"
	"fmt"
	"time"

	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/db"
)

// RuleKind says what a rule looks at; the numbers are the API's.
type RuleKind int64

// The kinds of rules.
const (
	EquipmentDown      RuleKind = 1
	EquipmentDegraded  RuleKind = 2
	LinkDown           RuleKind = 3
	LinkErrors         RuleKind = 4
	LinkLoss           RuleKind = 5
	EquipmentSilent    RuleKind = 6
	NetworkUnavailable RuleKind = 7
	PathLoss           RuleKind = 8
)

// Rule raises an alarm.
type Rule struct {
	Kind      RuleKind
	Enabled   bool
	Threshold int64 // seconds or ppm
	Severity  int64 // 1 warning, 2 major, 3 critical
	UpdatedAt time.Time
}

// base are the rules as they are at first, by kind, and what their thresholds may be.
var base = []struct {
	Rule
	least, most int64
}{
	{Rule{Kind: EquipmentDown, Enabled: true, Threshold: 10, Severity: 3}, 0, maxSilence},
	{Rule{Kind: EquipmentDegraded, Enabled: true, Threshold: 60, Severity: 1}, 0, maxSilence},
	{Rule{Kind: LinkDown, Enabled: true, Threshold: 10, Severity: 2}, 0, maxSilence},
	{Rule{Kind: LinkErrors, Enabled: true, Threshold: 100, Severity: 1}, 1, 1_000_000},
	{Rule{Kind: LinkLoss, Enabled: true, Threshold: 1000, Severity: 1}, 1, 1_000_000},
	{Rule{Kind: EquipmentSilent, Enabled: true, Severity: 2}, 0, maxSilence},
	{Rule{Kind: NetworkUnavailable, Enabled: true, Severity: 2}, 0, 0},
	{Rule{Kind: PathLoss, Enabled: true, Threshold: 50_000, Severity: 1}, 1, 1_000_000},
}

// Rules lists the rules by kind.
func (s *Service) Rules(ctx context.Context) (out []Rule, err error) {
	err = s.db.View(ctx, func(tx *db.Tx) error {
		out, err = rulesTx(ctx, tx)
		return err
	})
	return out, err
}

// SetRule changes a rule. It returns fault.Invalid.
func (s *Service) SetRule(ctx context.Context, r Rule) (*Rule, error) {
	var c core.Check
	if c.Range("rule.kind", int64(r.Kind), 1, int64(len(base))); c.Err() != nil {
		return nil, c.Err()
	}
	b := base[r.Kind-1]
	c.Range("rule.threshold", r.Threshold, b.least, b.most)
	c.Range("rule.severity", r.Severity, 1, 3)
	if err := c.Err(); err != nil {
		return nil, err
	}
	err := s.db.Tx(ctx, func(tx *db.Tx) error {
		r.UpdatedAt = tx.Now
		if _, err := tx.Exec(ctx, `INSERT INTO equipment_rules (kind, enabled, threshold, severity, updated_at) VALUES ($1, $2, $3, $4, $5)
			ON CONFLICT (kind) DO UPDATE SET enabled = $2, threshold = $3, severity = $4, updated_at = $5`, int64(r.Kind), r.Enabled, r.Threshold, r.Severity, db.Micros(tx.Now)); err != nil {
			return fmt.Errorf("store a rule of equipment: %w", err)
		}
		if err := s.ids.AuditTx(ctx, tx, fmt.Sprintf("equipment rule %d", r.Kind)); err != nil {
			return err
		}
		return emit(ctx, tx)
	})
	return &r, err
}
