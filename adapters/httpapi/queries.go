package httpapi

import (
	"context"
	"fmt"
	"slices"
	"strconv"

	"github.com/erpbackbone/backbone/adapters/httpapi/internal/api"
	"github.com/erpbackbone/backbone/application/query"
	"github.com/erpbackbone/backbone/domain/concurrency"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
)

var queryHandlers = handlers{
	"queryEvents": withBody((*Server).queryEvents),
}

// maxItemKeys bounds the tags and entities of one item together. The OpenAPI document bounds the
// lists.
const maxItemKeys = 16

// queryEvents answers POST /api/query.
func (s *Server) queryEvents(ctx context.Context, _ *request, body *api.EventQuery) (any, error) {
	if body.LegalEntity == "" {
		return nil, missingMember("/legal_entity")
	}
	le, err := s.authorizeIn(ctx, actionReadEvents, body.LegalEntity)
	if err != nil {
		return nil, pointAtMember(err, "/legal_entity")
	}
	q := query.MatchQuery{Entity: le, Limit: defaultPage}
	if body.Limit != nil {
		q.Limit = *body.Limit
	}
	if q.Limit < 1 || q.Limit > maxPage {
		return nil, invalidParameter("/limit", wantedPage)
	}
	if body.After != "" {
		after, err := strconv.ParseUint(body.After, 10, 63)
		if err != nil {
			return nil, invalidParameter("/after", `a sequence in quotes, such as "4711"`)
		}
		q.After = event.Sequence(after)
	}
	if q.Items, err = parseConditionItems(body.Items, "/items"); err != nil {
		return nil, err
	}
	page, err := s.config.Events.Match(ctx, q)
	if err != nil {
		return nil, err
	}
	w, err := s.renderPage(ctx, page.Events, false, page.HasMore)
	if err != nil {
		return nil, err
	}
	w.document("append_condition", api.AppendCondition{LegalEntity: le.Code, Items: body.Items, After: numberText(page.Condition.After)})
	w.raw("}")
	return w.answer()
}

// parseConditionItems reads the items of a query or a condition.
func parseConditionItems(given []api.ConditionItem, pointer string) ([]concurrency.Item, error) {
	if len(given) == 0 {
		return nil, invalidCondition(pointer)
	}
	out := make([]concurrency.Item, len(given))
	for i, item := range given {
		at := fmt.Sprintf("%s/%d", pointer, i)
		if keys := len(item.Tags) + len(item.Entities); keys > maxItemKeys {
			return nil, fault.New(fault.TooLarge, "append.condition_too_large", "there may be at most %d tags and entities in an item; ask for less at once", maxItemKeys).
				WithNumbers(maxItemKeys, keys).WithField(at)
		}
		if len(item.Types)+len(item.Tags)+len(item.Entities) == 0 || slices.Contains(item.Types, "") || slices.Contains(item.Tags, "") {
			return nil, invalidCondition(at)
		}
		out[i] = concurrency.Item{Types: item.Types, Tags: item.Tags}
		for _, e := range item.Entities {
			if e.EntityType == "" || e.EntityID == "" {
				return nil, invalidCondition(at)
			}
			out[i].Entities = append(out[i].Entities, concurrency.Entity{Type: e.EntityType, ID: e.EntityID})
		}
	}
	return out, nil
}
