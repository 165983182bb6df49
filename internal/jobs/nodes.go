package jobs

import (
	"context"
	"fmt"

	adapterv1 "yunhe.dev/yunhe/gen/yunhe/adapter/v1"
	jobsv1 "yunhe.dev/yunhe/gen/yunhe/jobs/v1"
	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/db"
)

// maxNode bounds the name of a node, in bytes.
const maxNode = 253

// checkNodes checks the nodes that tasks name: each is of one center, which lets
// jobs choose.
func (s *Service) checkNodes(ctx context.Context, c *core.Check, prefix string, j *jobsv1.JobSpec) error {
	for i, t := range j.Tasks {
		k := t.GetConstraints()
		if k.GetNode() == "" {
			continue
		}
		at := fmt.Sprintf("%stasks[%d].constraints.node", prefix, i)
		c.Text(at, k.Node, true, maxNode, 0)
		if len(k.Centers) != 1 {
			c.Add(at, "needs exactly one center in constraints.centers, got %d", len(k.Centers))
			continue
		}
		chooses, err := s.ChoosesNode(ctx, k.Centers[0])
		if err != nil {
			return err
		}
		if !chooses {
			c.Add(at, "center %s does not let jobs choose a node", clip(k.Centers[0]))
		}
	}
	return nil
}

// ChoosesNode reports whether jobs may choose a node of a center.
func (s *Service) ChoosesNode(ctx context.Context, centerID string) (chooses bool, err error) {
	err = s.db.View(ctx, func(tx *db.Tx) error {
		lacking, err := s.ad.LackingTx(ctx, tx, adapterv1.Feature_FEATURE_NODE, []string{centerID})
		chooses = len(lacking) == 0
		return err
	})
	return chooses, err
}
