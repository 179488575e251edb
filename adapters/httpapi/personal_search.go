package httpapi

import (
	"cmp"
	"context"

	"github.com/erpbackbone/backbone/adapters/httpapi/internal/api"
	"github.com/erpbackbone/backbone/application/blindindex"
	"github.com/erpbackbone/backbone/application/disclosure"
	kinds "github.com/erpbackbone/backbone/domain/blindindex"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/ports"
)

// PersonalSearch finds persons by name or address: blindindex.Index.
type PersonalSearch interface {
	// Search records the search. On an error there must be no answer.
	Search(ctx context.Context, p ports.Principal, why disclosure.Purpose, q blindindex.Query) (blindindex.Found, error)
}

var personalSearchHandlers = handlers{
	"searchPersonalData": withBody((*Server).searchPersonalData),
}

const actionPersonalSearch = "personal_data.search"

// searchPersonalData answers POST /api/personal-data/search.
func (s *Server) searchPersonalData(ctx context.Context, _ *request, body *api.PersonalSearch) (any, error) {
	if err := requireReason(ctx); err != nil {
		return nil, err
	}
	q := blindindex.Query{Cursor: body.Cursor, Limit: cmp.Or(body.Limit, defaultPage)}
	given := 0
	for kind, text := range map[kinds.Kind]string{kinds.Name: body.Name, kinds.Email: body.Email, kinds.Phone: body.Phone} {
		if text != "" {
			q.Kind, q.Text = kind, text
			given++
		}
	}
	if given != 1 {
		return nil, fault.New(fault.Invalid, "personal_search.text_missing", "a search is by a name, an e-mail address or a telephone number; give exactly one of name, email and phone")
	}
	if q.Limit < 1 || q.Limit > maxPage {
		return nil, invalidParameter("/limit", wantedPage)
	}
	var err error
	if q.Entities, _, err = s.logsWithPersons(ctx, actionPersonalSearch, body.LegalEntity); err != nil {
		return nil, err
	}
	found, err := s.config.PersonalSearch.Search(ctx, callOf(ctx).principal, purposeOf(ctx), q)
	if err != nil {
		return nil, convertToUnavailable(err)
	}
	return api.PersonalSearchResult{
		Persons: convert(found.Persons, func(p blindindex.Person) api.FoundPerson {
			return api.FoundPerson{Subject: p.Subject.String(), Places: convert(p.Places, func(at blindindex.Place) api.FoundPlace {
				return api.FoundPlace{LegalEntity: at.LegalEntity, Type: at.Type, Path: at.Path, Class: string(at.Class)}
			})}
		}),
		Behind: nonNil(found.Behind), HasMore: found.Next != "", NextCursor: found.Next,
	}, nil
}
