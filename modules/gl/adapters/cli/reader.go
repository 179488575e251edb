package cli

import (
	"context"
	"encoding/json"
	"maps"
	"net/url"
	"strconv"

	"github.com/erpbackbone/backbone/adapters/client"
	"github.com/erpbackbone/backbone/domain/fault"
)

// API is what the exports call of a server; *client.Client implements it.
type API interface {
	ReadModel(ctx context.Context, path string, query url.Values, out any, options ...client.Option) error
	ReadStream(ctx context.Context, streamType string, id string, params client.ReadStreamParams, options ...client.Option) (client.StreamPage, error)
	ListEvents(ctx context.Context, params client.ListEventsParams, options ...client.Option) (client.EventPage, error)
	ListLegalEntities(ctx context.Context, options ...client.Option) (client.LegalEntityList, error)
}

// Options say what is exported.
type Options struct {
	LegalEntity string
	From        string // ISO date, the first posting date; "" is the first of the books
	AsOf        string // ISO date, the last posting date; "" is today
	KnownAt     string // "" is now
	Version     string // of the program, for files that name it
	Progress    func(done, total uint64)
}

// pageLines is how many lines are read at once.
const pageLines = 1000

// account is a row of gl/accounts.
type account struct {
	Account  string `json:"account"`
	Name     string `json:"name"`
	Type     string `json:"type"`
	Control  string `json:"control"`
	Postable bool   `json:"postable"`
}

// line is a row of gl/journal-lines.
type line struct {
	JournalNumber      string            `json:"journal_number"`
	EffectiveDate      string            `json:"effective_date"`
	DocumentDate       string            `json:"document_date"`
	RecordedAt         string            `json:"recorded_at"`
	Type               string            `json:"type"`
	JournalDescription string            `json:"journal_description"`
	LineNumber         int               `json:"line_number"`
	Account            string            `json:"account"`
	AccountName        string            `json:"account_name"`
	Description        string            `json:"description"`
	Side               string            `json:"side"`
	Amount             string            `json:"amount"`
	Currency           string            `json:"currency"`
	FunctionalAmount   string            `json:"functional_amount"`
	FunctionalCurrency string            `json:"functional_currency"`
	Rate               string            `json:"rate"`
	TaxCode            string            `json:"tax_code"`
	Dimensions         map[string]string `json:"dimensions"`
	FiscalYear         string            `json:"fiscal_year"`
	Period             string            `json:"period"`
	SourceEventID      string            `json:"source_event_id"`
	CorrelationID      string            `json:"correlation_id"`
	IntentID           string            `json:"intent_id"`
	JournalID          string            `json:"journal_id"`
	EventID            string            `json:"event_id"`
	Sequence           string            `json:"sequence"`
}

type header struct {
	AsOf     string `json:"as_of"`
	Sequence string `json:"sequence"`
	Currency string `json:"currency"`
}

type page[T any] struct {
	Header     header `json:"header"`
	Rows       []T    `json:"rows"`
	NextCursor string `json:"next_cursor"`
}

// reader reads the reports of an export, all as known at one sequence.
type reader struct {
	options  Options
	api      API
	query    url.Values
	at       header
	accounts map[string]account // of the chart
}

// newReader reads the chart of accounts, and pins the day and the sequence at which
// everything else is read.
func newReader(ctx context.Context, api API, o Options) (*reader, error) {
	r := &reader{options: o, api: api, query: url.Values{"legal_entity": {o.LegalEntity}, "limit": {strconv.Itoa(pageLines)}}, accounts: map[string]account{}}
	if o.AsOf != "" {
		r.query.Set("as_of", o.AsOf)
	}
	if o.KnownAt != "" {
		r.query.Set("known_at", o.KnownAt)
	}
	err := read(ctx, r, "gl/accounts", nil, func(p page[account]) error {
		r.at = p.Header
		for _, a := range p.Rows {
			r.accounts[a.Account] = a
		}
		return nil
	})
	if err == nil && r.at.Sequence == "" {
		err = fault.New(fault.Internal, "client.answer_unreadable", "the server's answer is not what its API describes; check the server's address and version")
	}
	r.query.Set("as_of", r.at.AsOf)
	r.query.Set("known_at", "seq:"+r.at.Sequence)
	return r, err
}

// read reads the pages of a read model with the parameters of the export and others.
func read[T any](ctx context.Context, r *reader, path string, params map[string]string, each func(page[T]) error) error {
	query := cloneWith(r.query, params)
	for {
		var p page[T]
		if err := r.api.ReadModel(ctx, path, query, &p); err != nil {
			return err
		}
		if err := each(p); err != nil || p.NextCursor == "" {
			return err
		}
		query.Set("cursor", p.NextCursor)
	}
}

// readRows reads the rows of a read model as they are.
func readRows(ctx context.Context, r *reader, path string, params map[string]string, each func(row json.RawMessage) error) error {
	return read(ctx, r, path, params, func(p page[json.RawMessage]) error {
		for _, row := range p.Rows {
			if err := each(row); err != nil {
				return err
			}
		}
		return nil
	})
}

// readLines reads the journal lines of the export in the order in which they were recorded,
// and reports the progress. The lines of a journal follow each other.
func (r *reader) readLines(ctx context.Context, each func(l *line) error) error {
	total, err := strconv.ParseUint(r.at.Sequence, 10, 64)
	if err != nil {
		return err
	}
	err = read(ctx, r, "gl/journal-lines", r.from(), func(p page[line]) error {
		for i := range p.Rows {
			if err := each(&p.Rows[i]); err != nil {
				return err
			}
		}
		if r.options.Progress != nil && p.NextCursor != "" {
			done, _ := strconv.ParseUint(p.Rows[len(p.Rows)-1].Sequence, 10, 64)
			r.options.Progress(done, total)
		}
		return nil
	})
	if err == nil && r.options.Progress != nil {
		r.options.Progress(total, total)
	}
	return err
}

// from is the parameter for the first posting date.
func (r *reader) from() map[string]string {
	if r.options.From == "" {
		return nil
	}
	return map[string]string{"from": r.options.From}
}

// cloneWith copies a query and sets parameters.
func cloneWith(query url.Values, params map[string]string) url.Values {
	query = maps.Clone(query)
	for name, value := range params {
		query.Set(name, value)
	}
	return query
}
