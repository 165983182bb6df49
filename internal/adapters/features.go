package adapters

import (
	"context"
	"maps"
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

// partPrefix marks a part among the features of a center, as they are stored.
const partPrefix = "part."

// offerNames lists features and parts as they are stored.
func offerNames(fs []adapterv1.Feature, parts []adapterv1.Part) string {
	names := strings.Fields(featureNames(fs))
	for _, p := range parts {
		if _, known := adapterv1.Part_name[int32(p)]; known && p != adapterv1.Part_PART_UNSPECIFIED {
			names = append(names, partPrefix+partName(p))
		}
	}
	slices.Sort(names)
	return strings.Join(slices.Compact(names), " ")
}

// partName is how a part is called: "storage".
func partName(p adapterv1.Part) string {
	return strings.ToLower(strings.TrimPrefix(p.String(), "PART_"))
}

// OffersTx reports whether a center offered a part when it was last heard of.
func (s *Service) OffersTx(ctx context.Context, tx *db.Tx, centerID string, part adapterv1.Part) (bool, error) {
	return offersTx(ctx, tx, centerID, partPrefix+partName(part))
}

// StorageTx reports whether a center offered volumes when it was last heard of.
func (s *Service) StorageTx(ctx context.Context, tx *db.Tx, centerID string) (bool, error) {
	return s.OffersTx(ctx, tx, centerID, adapterv1.Part_PART_STORAGE)
}

func offersTx(ctx context.Context, tx *db.Tx, centerID, name string) (offered bool, err error) {
	err = tx.Query(ctx, `SELECT features FROM gateways WHERE ai_center_id = $1 AND NOT removed
		UNION ALL SELECT features FROM instances WHERE ai_center_id = $1 AND enabled`, []any{centerID}, func(row db.Row) error {
		var names string
		err := row.Scan(&names)
		offered = offered || slices.Contains(strings.Fields(names), name)
		return err
	})
	return offered, err
}

// PoolNodesTx returns the centers whose runs may have shares of pool nodes on their
// machine: of those of gateways which these are now, and those (many) of plug-ins, which
// tell of their machines ([registry.Node.Host]).
func (s *Service) PoolNodesTx(ctx context.Context, tx *db.Tx) (nodes map[string][]string, many []string, err error) {
	nodes = map[string][]string{}
	err = tx.Query(ctx, `SELECT ai_center_id, features, pool_nodes, FALSE FROM gateways WHERE NOT removed
		UNION ALL SELECT ai_center_id, features, '', TRUE FROM instances WHERE enabled`, nil, func(row db.Row) error {
		var center, features, of string
		var instance bool
		err := row.Scan(&center, &features, &of, &instance)
		switch {
		case !slices.Contains(strings.Fields(features), featureName(adapterv1.Feature_FEATURE_POOL_LOCAL)):
		case instance:
			many = append(many, center)
		default:
			nodes[center] = append(nodes[center], strings.Fields(of)...)
		}
		return err
	})
	return nodes, many, err
}

// WithoutTx returns the centers that are served and did not offer a feature when
// they were last heard of, sorted.
func (s *Service) WithoutTx(ctx context.Context, tx *db.Tx, f adapterv1.Feature) ([]string, error) {
	offers := map[string]bool{}
	err := tx.Query(ctx, `SELECT ai_center_id, features FROM gateways WHERE NOT removed
		UNION ALL SELECT ai_center_id, features FROM instances WHERE enabled`, nil, func(row db.Row) error {
		var center, names string
		err := row.Scan(&center, &names)
		offers[center] = offers[center] || slices.Contains(strings.Fields(names), featureName(f))
		return err
	})
	maps.DeleteFunc(offers, func(_ string, offered bool) bool { return offered })
	return slices.Sorted(maps.Keys(offers)), err
}

// LackingTx returns those of the centers that do not offer a feature, in their
// order: neither their gateway nor an instance that serves them has claimed it
// when it was last heard of.
func (s *Service) LackingTx(ctx context.Context, tx *db.Tx, f adapterv1.Feature, centers []string) (lacking []string, err error) {
	for _, c := range centers {
		offered, err := offersTx(ctx, tx, c, featureName(f))
		if err != nil {
			return nil, err
		}
		if !offered {
			lacking = append(lacking, c)
		}
	}
	return lacking, nil
}
