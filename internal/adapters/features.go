package adapters

import (
	"context"
	"slices"
	"strings"

	adapterv1 "yunhe.dev/yunhe/gen/yunhe/adapter/v1"
	"yunhe.dev/yunhe/internal/db"
)

// featureName is how a feature is stored: "suspend".
func featureName(f adapterv1.Feature) string {
	return strings.ToLower(strings.TrimPrefix(f.String(), "FEATURE_"))
}

// featureNames lists features as they are stored, sorted and separated by spaces.
func featureNames(fs []adapterv1.Feature) string {
	names := make([]string, 0, len(fs))
	for _, f := range fs {
		if _, known := adapterv1.Feature_name[int32(f)]; known && f != adapterv1.Feature_FEATURE_UNSPECIFIED {
			names = append(names, featureName(f))
		}
	}
	slices.Sort(names)
	return strings.Join(slices.Compact(names), " ")
}

// LackingTx returns those of the centers that do not offer a feature, in their
// order: neither their gateway nor an instance that serves them has claimed it
// when it was last heard of.
func (s *Service) LackingTx(ctx context.Context, tx *db.Tx, f adapterv1.Feature, centers []string) (lacking []string, err error) {
	for _, c := range centers {
		offered := false
		err := tx.Query(ctx, `SELECT features FROM gateways WHERE ai_center_id = $1 AND NOT removed
			UNION ALL SELECT features FROM instances WHERE ai_center_id = $1 AND enabled`, []any{c}, func(row db.Row) error {
			var names string
			err := row.Scan(&names)
			offered = offered || slices.Contains(strings.Fields(names), featureName(f))
			return err
		})
		if err != nil {
			return nil, err
		}
		if !offered {
			lacking = append(lacking, c)
		}
	}
	return lacking, nil
}
