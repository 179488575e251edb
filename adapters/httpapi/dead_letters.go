package httpapi

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"slices"

	"github.com/erpbackbone/backbone/adapters/httpapi/internal/api"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/ports"
)

var deadLetterHandlers = handlers{
	"listDeadLetters": (*Server).listDeadLetters,
}

// deadLetterCursor is the position of the last dead letter of a page.
type deadLetterCursor struct {
	Kind      string `json:"k"`
	Name      string `json:"n"`
	Version   int    `json:"v"`
	Partition uint32 `json:"p"`
	Sequence  uint64 `json:"s"`
}

// listDeadLetters answers GET /api/admin/dead-letters.
func (s *Server) listDeadLetters(ctx context.Context, r *request) (any, error) {
	limit := r.pageLimit("limit")
	if r.err != nil {
		return nil, r.err
	}
	q := ports.DeadLetterQuery{Kind: r.query("kind"), Name: r.query("name"), Limit: limit + 1, Statuses: r.list("status")}
	var err error
	if q.Name != "" && (q.Kind == "" || q.Kind == ports.LetterOfProjection) {
		if q.Name, err = s.fullProjectionName(ctx, q.Name); err != nil {
			return nil, err
		}
	}
	known := []string{ports.LetterWaiting, ports.LetterPassed, ports.LetterSkipped, ports.LetterResolved, ports.LetterDiscarded}
	if slices.ContainsFunc(q.Statuses, func(text string) bool { return !slices.Contains(known, text) }) {
		return nil, invalidParameter("status", "a list of states such as waiting,passed")
	}
	if r.query("cursor") != "" {
		var k deadLetterCursor
		raw, err := base64.RawURLEncoding.DecodeString(r.query("cursor"))
		if err != nil || json.Unmarshal(raw, &k) != nil {
			return nil, invalidParameter("cursor", "next_cursor of the page before")
		}
		q.After = &ports.DeadLetter{Kind: k.Kind, Name: k.Name, Version: k.Version, Partition: event.PartitionID(k.Partition), Sequence: event.Sequence(k.Sequence)}
	}
	ids, codes, err := s.visiblePartitions(ctx)
	if err != nil {
		return nil, err
	}
	out := api.DeadLetterList{DeadLetters: []api.DeadLetter{}}
	if len(ids) == 0 {
		return out, nil
	}
	q.Partitions = ids
	list, err := s.config.Projections.DeadLetters(ctx, q)
	if err != nil {
		return nil, err
	}
	if len(list) > limit {
		list = list[:limit]
		last := list[limit-1]
		raw, err := json.Marshal(deadLetterCursor{last.Kind, last.Name, last.Version, uint32(last.Partition), uint64(last.Sequence)})
		if err != nil {
			return nil, err
		}
		out.NextCursor = base64.RawURLEncoding.EncodeToString(raw)
	}
	for _, d := range list {
		if d.Kind == ports.LetterOfProjection {
			d.Name, _ = tenantProjectionName(ctx, d.Name) // the partition is visible, so the tenant is the caller's
		}
		out.DeadLetters = append(out.DeadLetters, api.DeadLetter{
			Kind: d.Kind, Name: d.Name, Version: d.Version, LegalEntity: codes[d.Partition], Sequence: numberText(d.Sequence), EventID: d.EventID.String(),
			Code: d.Code, Detail: d.Detail, Attempts: d.Attempts, FirstFailedAt: timeText(d.FirstFailedAt), LastFailedAt: timeText(d.LastFailedAt),
			Status: d.Status, SettledAt: optionalTime(d.SettledAt), SettledBy: d.SettledBy, Reason: d.Reason,
		})
	}
	return out, nil
}
