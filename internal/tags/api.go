package tags

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	tagsv1 "yunhe.dev/yunhe/gen/yunhe/tags/v1"
	"yunhe.dev/yunhe/gen/yunhe/tags/v1/tagsv1connect"
	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/fault"
	"yunhe.dev/yunhe/internal/rpc"
	"yunhe.dev/yunhe/internal/tags/expr"
)

// Register mounts the service's API.
func (s *Service) Register(srv *rpc.Server) {
	srv.Service(tagsv1connect.NewTagServiceHandler(api{s}, srv.Options()...))
}

type api struct{ s *Service }

func (a api) ListTagGroups(ctx context.Context, _ *tagsv1.ListTagGroupsRequest) (*tagsv1.ListTagGroupsResponse, error) {
	rows, err := a.s.Groups(ctx)
	if err != nil {
		return nil, err
	}
	return &tagsv1.ListTagGroupsResponse{Groups: each(rows, groupProto)}, nil
}

func (a api) PutTagGroup(ctx context.Context, r *tagsv1.PutTagGroupRequest) (*tagsv1.TagGroup, error) {
	p := r.GetGroup()
	return answer(groupProto)(a.s.PutGroup(ctx, groupIn(p)))
}

func groupIn(p *tagsv1.TagGroup) Group {
	return Group{ID: p.GetGroupId(), Title: p.GetTitle(), TitleZH: p.GetTitleZh(), Description: p.GetDescription(), Kinds: kindsIn(p.GetKinds())}
}

func (a api) DeleteTagGroup(ctx context.Context, r *tagsv1.DeleteTagGroupRequest) (*tagsv1.DeleteTagGroupResponse, error) {
	return &tagsv1.DeleteTagGroupResponse{}, a.s.DeleteGroup(ctx, r.GetGroupId())
}

func (a api) ListTags(ctx context.Context, r *tagsv1.ListTagsRequest) (*tagsv1.ListTagsResponse, error) {
	rows, err := a.s.Definitions(ctx, r.GetGroupId(), Kind(r.GetKind()))
	if err != nil {
		return nil, err
	}
	return &tagsv1.ListTagsResponse{Tags: each(rows, tagOut(ctx))}, nil
}

func (a api) GetTag(ctx context.Context, r *tagsv1.GetTagRequest) (*tagsv1.Tag, error) {
	return answer(tagOut(ctx))(a.s.Definition(ctx, r.GetKey()))
}

func (a api) CreateTag(ctx context.Context, r *tagsv1.CreateTagRequest) (*tagsv1.Tag, error) {
	return answer(tagOut(ctx))(a.s.CreateDefinition(ctx, definitionIn(r.GetTag())))
}

func (a api) UpdateTag(ctx context.Context, r *tagsv1.UpdateTagRequest) (*tagsv1.Tag, error) {
	return answer(tagOut(ctx))(a.s.UpdateDefinition(ctx, definitionIn(r.GetTag())))
}

func (a api) DeleteTag(ctx context.Context, r *tagsv1.DeleteTagRequest) (*tagsv1.DeleteTagResponse, error) {
	return &tagsv1.DeleteTagResponse{}, a.s.DeleteDefinition(ctx, r.GetKey(), r.GetWithValues())
}

func (a api) GetObjectTags(ctx context.Context, r *tagsv1.GetObjectTagsRequest) (*tagsv1.ObjectTags, error) {
	t, err := a.s.Get(ctx, r.GetObject())
	return a.tagged(ctx, t, err)
}

func (a api) tagged(ctx context.Context, t Tagged, err error) (*tagsv1.ObjectTags, error) {
	if err != nil {
		return nil, err
	}
	out, err := a.taggedAll(ctx, []Tagged{t})
	if err != nil {
		return nil, err
	}
	return out[0], nil
}

func (a api) taggedAll(ctx context.Context, rows []Tagged) ([]*tagsv1.ObjectTags, error) {
	defs, err := a.s.Definitions(ctx, "", 0)
	if err != nil {
		return nil, err
	}
	byKey := map[string]*Definition{}
	for i := range defs {
		byKey[defs[i].Key] = &defs[i]
	}
	return each(rows, func(t Tagged) *tagsv1.ObjectTags {
		out := &tagsv1.ObjectTags{Object: t.Object, Kind: tagsv1.ObjectKind(t.Kind), Name: t.Name, Parents: t.Parents}
		for _, x := range t.Tags {
			if d := byKey[x.Key]; d != nil {
				out.Tags = append(out.Tags, objectTag(ctx, d, x, x.From == t.Object))
			}
		}
		return out
	}), nil
}

func objectTag(ctx context.Context, d *Definition, x Tag, own bool) *tagsv1.ObjectTag {
	out := &tagsv1.ObjectTag{
		Key: x.Key, Value: x.Value, Title: d.Title, TitleZh: d.TitleZH, GroupId: d.GroupID, From: x.From, Source: tagsv1.Source(x.Source), Origin: x.Origin, BatchId: x.BatchID,
		Reason: x.Reason, CreatedAt: stamp(x.CreatedAt), UpdatedAt: stamp(x.UpdatedAt), Blocked: x.Blocked, Status: tagsv1.TagStatus(d.Status), Inherited: d.Inherited,
		PolicyMatchable: d.visible(),
		Hides:           each(x.Hides, func(h Hidden) *tagsv1.HiddenValue { return &tagsv1.HiddenValue{From: h.From, Value: h.Value} }),
	}
	if !core.CallerFrom(ctx).Can("registry.write") || mayWrite(ctx, d, nil) != nil {
		return out
	}
	if d.Status == Active {
		out.Operations = append(out.Operations, "set")
	}
	if own && x.Source == Person {
		out.Operations = append(out.Operations, "clear")
	}
	if !x.Blocked || !own {
		out.Operations = append(out.Operations, "block")
	}
	return out
}

func (a api) ListTaggedObjects(ctx context.Context, r *tagsv1.ListTaggedObjectsRequest) (*tagsv1.ListTaggedObjectsResponse, error) {
	rows, next, err := a.s.List(ctx, selectorIn(r.GetSelector()), r.GetPageSize(), r.GetPageToken())
	if err != nil {
		return nil, err
	}
	out, err := a.taggedAll(ctx, rows)
	if err != nil {
		return nil, err
	}
	return &tagsv1.ListTaggedObjectsResponse{Objects: out, NextPageToken: next}, nil
}

func (a api) SetTags(ctx context.Context, r *tagsv1.SetTagsRequest) (*tagsv1.SetTagsResponse, error) {
	if len(r.GetObjects()) == 0 {
		return nil, fault.Fields(fault.Field{Path: "objects", Problem: "is required"})
	}
	res, err := a.s.Apply(ctx, Batch{Selector: Selector{Objects: r.GetObjects()}, Changes: each(r.GetChanges(), changeIn), DryRun: r.GetDryRun(), RequestID: r.GetRequestId(), Reason: r.GetReason()})
	if err != nil {
		return nil, err
	}
	return &tagsv1.SetTagsResponse{Result: resultProto(&res)}, nil
}

// tellEvery is how often a batch tells how far it is.
const tellEvery = 200 * time.Millisecond

func (a api) ApplyTags(ctx context.Context, r *tagsv1.ApplyTagsRequest, out *connect.ServerStream[tagsv1.ApplyTagsResponse]) error {
	// Only the latest is told: a slow reader must not hold up the transaction.
	latest := make(chan *tagsv1.ApplyTagsResponse, 1)
	b := Batch{Selector: selectorIn(r.GetSelector()), Changes: each(r.GetChanges(), changeIn), DryRun: r.GetDryRun(), RequestID: r.GetRequestId(), Reason: r.GetReason()}
	b.Progress = func(step string, done, total int) {
		m := &tagsv1.ApplyTagsResponse{Step: step, Done: int64(done), Total: int64(total)}
		for {
			select {
			case latest <- m:
				return
			default:
			}
			select {
			case <-latest:
			default:
			}
		}
	}
	stop, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		tick := time.NewTicker(tellEvery)
		defer tick.Stop()
		var err error
		for err == nil {
			select {
			case <-stop:
				ended <- nil
				return
			case <-tick.C:
			}
			select {
			case m := <-latest:
				err = out.Send(m)
			default:
			}
		}
		ended <- err
	}()
	told := sync.OnceValue(func() error { close(stop); return <-ended })
	defer func() { _ = told() }() // also after a panic
	res, err := a.s.Apply(ctx, b)
	if err != nil {
		return err
	}
	if err := told(); err != nil {
		return err
	}
	return out.Send(&tagsv1.ApplyTagsResponse{Step: "done", Done: res.Objects, Total: res.Objects, Result: resultProto(&res)})
}

func (a api) ListTagRules(ctx context.Context, r *tagsv1.ListTagRulesRequest) (*tagsv1.ListTagRulesResponse, error) {
	rows, err := a.s.Rules(ctx, r.GetKey())
	if err != nil {
		return nil, err
	}
	return &tagsv1.ListTagRulesResponse{Rules: each(rows, ruleProto)}, nil
}

func (a api) GetTagRule(ctx context.Context, r *tagsv1.GetTagRuleRequest) (*tagsv1.TagRule, error) {
	return answer(ruleProto)(a.s.Rule(ctx, r.GetRuleId()))
}

func (a api) CreateTagRule(ctx context.Context, r *tagsv1.CreateTagRuleRequest) (*tagsv1.TagRule, error) {
	return answer(ruleProto)(a.s.CreateRule(ctx, ruleIn(r.GetRule())))
}

func (a api) UpdateTagRule(ctx context.Context, r *tagsv1.UpdateTagRuleRequest) (*tagsv1.TagRule, error) {
	return answer(ruleProto)(a.s.UpdateRule(ctx, ruleIn(r.GetRule())))
}

func (a api) DeleteTagRule(ctx context.Context, r *tagsv1.DeleteTagRuleRequest) (*tagsv1.DeleteTagRuleResponse, error) {
	return &tagsv1.DeleteTagRuleResponse{}, a.s.DeleteRule(ctx, r.GetRuleId())
}

func (a api) CheckExpression(ctx context.Context, r *tagsv1.CheckExpressionRequest) (*tagsv1.CheckExpressionResponse, error) {
	x, err := a.s.CheckExpression(ctx, Kind(r.GetKind()), r.GetExpression(), r.GetObject(), r.GetValue())
	if err != nil {
		return nil, err
	}
	out := &tagsv1.CheckExpressionResponse{Evaluated: x.Evaluated, Holds: x.Holds, Value: x.Value, Reason: x.Reason,
		Problems: each(x.Problems, func(p expr.Problem) *tagsv1.ExpressionProblem {
			return &tagsv1.ExpressionProblem{Line: int32(p.Line), Column: int32(p.Column), Message: p.Message}
		}),
		Variables: each(x.Variables, func(v expr.Variable) *tagsv1.Variable {
			return &tagsv1.Variable{Name: v.Name, Type: v.Type, Doc: v.Doc, Live: v.Live}
		})}
	if x.Facts != nil {
		// Through JSON, which knows every type that facts have.
		b, err := json.Marshal(x.Facts)
		if err != nil {
			return nil, fmt.Errorf("encode facts: %w", err)
		}
		out.Facts = &structpb.Struct{}
		if err := out.Facts.UnmarshalJSON(b); err != nil {
			return nil, fmt.Errorf("encode facts: %w", err)
		}
	}
	return out, nil
}

func (a api) ListTagRecommendations(ctx context.Context, r *tagsv1.ListTagRecommendationsRequest) (*tagsv1.ListTagRecommendationsResponse, error) {
	rows, err := a.s.Recommend(ctx, r.GetObject())
	if err != nil {
		return nil, err
	}
	return &tagsv1.ListTagRecommendationsResponse{Recommendations: each(rows, func(x Recommendation) *tagsv1.TagRecommendation {
		return &tagsv1.TagRecommendation{Key: x.Key, Value: x.Value, Title: x.Title, Score: int32(x.Score), Reason: x.Reason, RuleId: x.RuleID,
			Alike: each(x.Alike, func(o Alike) *tagsv1.AlikeObject {
				return &tagsv1.AlikeObject{Object: o.Object, Name: o.Name, Similarity: int32(o.Similarity), Common: o.Common}
			})}
	})}, nil
}

func (a api) AnswerTagRecommendation(ctx context.Context, r *tagsv1.AnswerTagRecommendationRequest) (*tagsv1.ObjectTags, error) {
	t, err := a.s.Answer(ctx, r.GetObject(), r.GetKey(), r.GetValue(), r.GetAccept())
	return a.tagged(ctx, t, err)
}

func (a api) ListTagChanges(ctx context.Context, r *tagsv1.ListTagChangesRequest) (*tagsv1.ListTagChangesResponse, error) {
	rows, next, err := a.s.Records(ctx, RecordFilter{Subject: r.GetSubject(), Key: r.GetKey(), BatchID: r.GetBatchId()}, r.GetPageSize(), r.GetPageToken())
	if err != nil {
		return nil, err
	}
	return &tagsv1.ListTagChangesResponse{NextPageToken: next, Changes: each(rows, func(x Record) *tagsv1.TagChangeRecord {
		return &tagsv1.TagChangeRecord{ChangeId: x.ID, At: stamp(x.At), Subject: x.Subject, Key: x.Key, Before: x.Before.Value, BeforeBlocked: x.Before.Blocked,
			After: x.After.Value, AfterBlocked: x.After.Blocked, Source: tagsv1.Source(x.Source), Origin: x.Origin, BatchId: x.BatchID, Reason: x.Reason}
	})}, nil
}

func (a api) ShareTags(ctx context.Context, r *tagsv1.ShareTagsRequest) (*tagsv1.SharedTags, error) {
	x, err := a.s.Share(ctx, r.Keys, r.GroupId)
	if err != nil {
		return nil, err
	}
	out := &tagsv1.SharedTags{Groups: each(x.Groups, groupProto), Tags: each(x.Definitions, tagOut(ctx)), Rules: each(x.Rules, ruleProto)}
	for _, t := range out.Tags {
		t.Operations = nil // those are of one platform too
	}
	return out, nil
}

func (a api) AdoptTags(ctx context.Context, r *tagsv1.AdoptTagsRequest) (*tagsv1.AdoptTagsResponse, error) {
	in := Shared{Definitions: each(r.GetShared().GetTags(), definitionIn), Rules: each(r.GetShared().GetRules(), ruleIn)}
	in.Groups = each(r.GetShared().GetGroups(), groupIn)
	list, err := a.s.Adopt(ctx, in, r.Replace, r.DryRun)
	if err != nil {
		return nil, err
	}
	return &tagsv1.AdoptTagsResponse{Results: each(list, func(a Adopted) *tagsv1.AdoptedTag {
		return &tagsv1.AdoptedTag{Kind: a.Kind, Id: a.ID, Outcome: string(a.Outcome), Message: a.Message}
	})}, nil
}

func groupProto(g Group) *tagsv1.TagGroup {
	return &tagsv1.TagGroup{GroupId: g.ID, Title: g.Title, TitleZh: g.TitleZH, Description: g.Description, Kinds: kindsOut(g.Kinds), Tags: g.Tags, CreatedAt: stamp(g.CreatedAt), UpdatedAt: stamp(g.UpdatedAt)}
}

func definitionIn(p *tagsv1.Tag) Definition {
	return Definition{Key: p.GetKey(), Title: p.GetTitle(), TitleZH: p.GetTitleZh(), GroupID: p.GetGroupId(), Description: p.GetDescription(), Type: ValueType(p.GetValueType()),
		Allowed: p.GetAllowedValues(), Kinds: kindsIn(p.GetKinds()), Setter: Setter(p.GetSetter()), Inherited: p.GetInherited(), Hidden: p.GetHiddenFromPolicies(),
		Status: Status(p.GetStatus()), Version: p.GetVersion()}
}

// tagOut writes tags with what the caller may do.
func tagOut(ctx context.Context) func(Definition) *tagsv1.Tag {
	write := core.CallerFrom(ctx).Can("registry.write")
	return func(d Definition) *tagsv1.Tag {
		out := &tagsv1.Tag{Key: d.Key, Title: d.Title, TitleZh: d.TitleZH, GroupId: d.GroupID, Description: d.Description, ValueType: tagsv1.ValueType(d.Type), AllowedValues: d.Allowed,
			Kinds: kindsOut(d.Kinds), Setter: tagsv1.Setter(d.Setter), Inherited: d.Inherited, HiddenFromPolicies: d.Hidden, Status: tagsv1.TagStatus(d.Status), Version: d.Version,
			CreatedAt: stamp(d.CreatedAt), UpdatedAt: stamp(d.UpdatedAt), Objects: d.Objects, Rules: d.Rules}
		if write {
			if d.Status == Active && mayWrite(ctx, &d, nil) == nil {
				out.Operations = append(out.Operations, "set")
			}
			out.Operations = append(out.Operations, "update", "delete")
		}
		out.Operations = append(out.Operations, "share")
		return out
	}
}

func ruleIn(p *tagsv1.TagRule) RuleSpec {
	return RuleSpec{ID: p.GetRuleId(), Title: p.GetTitle(), Description: p.GetDescription(), Key: p.GetKey(), Kinds: kindsIn(p.GetKinds()), When: p.GetWhen(), Until: p.GetUntil(),
		Value: p.GetValue(), ValueExpression: p.GetValueExpression(), Hold: p.GetHoldSeconds(), Priority: p.GetPriority(), Mode: Mode(p.GetMode()), Version: p.GetVersion()}
}

func ruleProto(r RuleSpec) *tagsv1.TagRule {
	return &tagsv1.TagRule{RuleId: r.ID, Title: r.Title, Description: r.Description, Key: r.Key, Kinds: kindsOut(r.Kinds), When: r.When, Until: r.Until, Value: r.Value,
		ValueExpression: r.ValueExpression, HoldSeconds: r.Hold, Priority: r.Priority, Mode: tagsv1.RuleMode(r.Mode), Version: r.Version, CreatedAt: stamp(r.CreatedAt),
		UpdatedAt: stamp(r.UpdatedAt), Matched: r.Matched, EvaluatedAt: stamp(r.EvaluatedAt), Error: r.Error, Live: r.Live}
}

func selectorIn(p *tagsv1.Selector) Selector {
	return Selector{Kinds: kindsIn(p.GetKinds()), Objects: slices.Clone(p.GetObjects()), CenterID: p.GetAiCenterId(), Expression: p.GetExpression()}
}

func changeIn(p *tagsv1.TagChange) Change {
	return Change{Key: p.GetKey(), Value: p.GetValue(), Op: Op(p.GetOp())}
}

func resultProto(r *Result) *tagsv1.BatchResult {
	return &tagsv1.BatchResult{BatchId: r.BatchID, Objects: r.Objects, Changed: r.Changed, Unchanged: r.Unchanged, Applied: r.Applied, RepeatedRequest: r.Repeated,
		Changes: each(r.Changes, func(x Applied) *tagsv1.AppliedChange {
			return &tagsv1.AppliedChange{Object: x.Object, Key: x.Key, Before: x.Before.Value, BeforeBlocked: x.Before.Blocked, After: x.After.Value, AfterBlocked: x.After.Blocked}
		}),
		Problems: each(r.Problems, func(x Trouble) *tagsv1.Problem {
			return &tagsv1.Problem{Object: x.Object, Field: x.Field, Problem: x.Problem}
		})}
}

func kindsIn(in []tagsv1.ObjectKind) []Kind {
	return each(in, func(k tagsv1.ObjectKind) Kind { return Kind(k) })
}
func kindsOut(in []Kind) []tagsv1.ObjectKind {
	return each(in, func(k Kind) tagsv1.ObjectKind { return tagsv1.ObjectKind(k) })
}

// stamp is unset for no time.
func stamp(t time.Time) *timestamppb.Timestamp {
	if t.IsZero() {
		return nil
	}
	return timestamppb.New(t)
}

// answer turns a domain call's result into a handler's.
func answer[T, P any](f func(T) P) func(T, error) (P, error) {
	return func(v T, err error) (p P, _ error) {
		if err != nil {
			return p, err
		}
		return f(v), nil
	}
}

func each[T, P any](rows []T, f func(T) P) []P {
	out := make([]P, len(rows))
	for i, r := range rows {
		out[i] = f(r)
	}
	return out
}
