package postgres

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/modules/gl/adapters/postgres/internal/gldb"
	"github.com/erpbackbone/backbone/ports"
)

// NewJournals makes the source of gl/journals.
func NewJournals(pool *pgxpool.Pool) ports.ReadModelSource {
	return newSource(pool, (*source).journals)
}

// NewJournal makes the source of gl/journals/{number}.
func NewJournal(pool *pgxpool.Pool) ports.ReadModelSource { return newSource(pool, (*source).journal) }

// NewJournalLines makes the source of gl/journal-lines.
func NewJournalLines(pool *pgxpool.Pool) ports.ReadModelSource {
	return newSource(pool, (*source).journalLines)
}

type journalRow struct {
	JournalNumber      string   `json:"journal_number"`
	EffectiveDate      string   `json:"effective_date"`
	DocumentDate       string   `json:"document_date,omitempty"`
	RecordedAt         string   `json:"recorded_at"`
	Type               string   `json:"type"`
	Period             string   `json:"period"`
	FiscalYear         string   `json:"fiscal_year"`
	Description        string   `json:"description"`
	Total              string   `json:"total"`
	FunctionalCurrency string   `json:"functional_currency"`
	Lines              int32    `json:"lines"`
	Reverses           string   `json:"reverses,omitempty"`
	ReversesID         string   `json:"reverses_journal_id,omitempty"`
	ReversedBy         string   `json:"reversed_by,omitempty"`
	ReversedByID       string   `json:"reversed_by_journal_id,omitempty"`
	SourceModule       string   `json:"source_module,omitempty"`
	SourceEventID      string   `json:"source_event_id,omitempty"`
	ActorID            string   `json:"actor_id"`
	Approvers          []string `json:"approvers"`
	IntentID           string   `json:"intent_id,omitempty"`
	CorrelationID      string   `json:"correlation_id"`
	JournalID          string   `json:"journal_id"`
	EventID            string   `json:"event_id"`
	Sequence           string   `json:"sequence"`
}

// journals lists journals in the order in which they were recorded.
func (s *source) journals(ctx context.Context, q ports.ReadModelQuery) (ports.Report, error) {
	_, header, err := s.bookHeader(ctx, q)
	if err != nil {
		return ports.Report{}, err
	}
	from, err := fromDate(q)
	if err != nil {
		return ports.Report{}, err
	}
	after := int64(0)
	if q.Cursor != "" {
		if after, err = strconv.ParseInt(q.Cursor, 10, 64); err != nil {
			return ports.Report{}, malformed()
		}
	}
	found, err := s.queries.Journals(ctx, s.pool, &gldb.JournalsParams{
		Known: int64(q.Known), PartitionID: int32(q.Partition), Version: int32(q.Version), After: after, AsOf: date(q.AsOf), FromDate: date(from),
		JournalType: q.Params["type"], Period: q.Params["period"], NumberFrom: q.Params["number_from"], NumberTo: q.Params["number_to"], MaxRows: int32(q.Limit + 1),
	})
	if err != nil {
		return ports.Report{}, fmt.Errorf("journals: %w", err)
	}
	report := ports.Report{Header: header}
	for i := range found {
		if i == q.Limit {
			report.HasMore, report.NextCursor = true, strconv.FormatInt(found[i-1].Sequence, 10)
			break
		}
		row, err := newJournalRow(&found[i])
		if err != nil {
			return report, err
		}
		report.Rows = append(report.Rows, row)
	}
	return report, nil
}

func newJournalRow(r *gldb.JournalsRow) (journalRow, error) {
	total := r.TotalDebit
	if r.FunctionalCurrency != "" {
		var err error
		if total, err = fixed(r.TotalDebit, r.FunctionalCurrency); err != nil {
			return journalRow{}, err
		}
	}
	return journalRow{
		JournalNumber: r.JournalNumber, EffectiveDate: dateText(r.EffectiveDate), DocumentDate: dateText(r.DocumentDate), RecordedAt: formatTime(r.RecordedAt), Type: r.JournalType, Period: r.Period,
		FiscalYear: r.FiscalYear, Description: r.Description, Total: total, FunctionalCurrency: r.FunctionalCurrency, Lines: r.Lines,
		Reverses: r.ReversesNumber, ReversesID: r.ReversesJournalID, ReversedBy: r.ReversedByNumber, ReversedByID: r.ReversedBy, SourceModule: r.SourceModule,
		SourceEventID: r.SourceEventID, ActorID: r.ActorID, Approvers: r.Approvers, IntentID: uuidText(r.IntentID), CorrelationID: r.CorrelationID,
		JournalID: r.JournalID, EventID: uuidText(r.EventID), Sequence: strconv.FormatInt(r.Sequence, 10),
	}, nil
}

type journalLineRow struct {
	JournalNumber      string          `json:"journal_number"`
	EffectiveDate      string          `json:"effective_date"`
	DocumentDate       string          `json:"document_date,omitempty"`
	RecordedAt         string          `json:"recorded_at"`
	Type               string          `json:"type"`
	JournalDescription string          `json:"journal_description"`
	LineNumber         int32           `json:"line_number"`
	Account            string          `json:"account"`
	AccountName        string          `json:"account_name"`
	Description        string          `json:"description"`
	Side               string          `json:"side"`
	Amount             string          `json:"amount"`
	Currency           string          `json:"currency"`
	FunctionalAmount   string          `json:"functional_amount"`
	FunctionalCurrency string          `json:"functional_currency"`
	Rate               string          `json:"rate,omitempty"`
	RateDate           string          `json:"rate_date,omitempty"`
	TaxCode            string          `json:"tax_code,omitempty"`
	Dimensions         json.RawMessage `json:"dimensions"`
	FiscalYear         string          `json:"fiscal_year"`
	Period             string          `json:"period"`
	SourceModule       string          `json:"source_module,omitempty"`
	SourceEventID      string          `json:"source_event_id,omitempty"`
	CorrelationID      string          `json:"correlation_id"`
	IntentID           string          `json:"intent_id,omitempty"`
	JournalID          string          `json:"journal_id"`
	EventID            string          `json:"event_id"`
	Sequence           string          `json:"sequence"`
}

// journal shows one journal: its header, and its lines as rows. Fault: gl.journal.not_found.
func (s *source) journal(ctx context.Context, q ports.ReadModelQuery) (ports.Report, error) {
	name := q.Params["number"]
	sequence, err := s.queries.JournalSequence(ctx, s.pool, &gldb.JournalSequenceParams{
		PartitionID: int32(q.Partition), Version: int32(q.Version), Known: int64(q.Known), Name: name,
	})
	var found []gldb.JournalsRow
	if err == nil {
		found, err = s.queries.Journals(ctx, s.pool, &gldb.JournalsParams{
			Known: int64(q.Known), PartitionID: int32(q.Partition), Version: int32(q.Version), After: sequence - 1, AsOf: date(q.AsOf), FromDate: date(firstDay), MaxRows: 1,
		})
	}
	if errors.Is(err, pgx.ErrNoRows) || err == nil && (len(found) == 0 || found[0].Sequence != sequence) {
		return ports.Report{}, fault.New(fault.NotFound, "gl.journal.not_found",
			"there is no journal %q effective by %s; look its number up in gl/journals, or ask for a later as_of or known_at", name, q.AsOf).With("journal", name)
	}
	if err != nil {
		return ports.Report{}, fmt.Errorf("journal: %w", err)
	}
	row, err := newJournalRow(&found[0])
	if err != nil {
		return ports.Report{}, err
	}
	header := ports.ReportFields{
		{Name: "legal_entity", Value: q.Entity.Code}, {Name: "as_of", Value: q.AsOf.String()}, {Name: "known_at", Value: q.KnownAt}, {Name: "journal", Value: row},
	}
	return s.lines(ctx, q, header, gldb.JournalLinePageParams{AfterSequence: sequence - 1, AfterLine: maxLine, Upto: sequence, FromDate: date(firstDay)})
}

// journalLines lists the lines of all journals, as they were posted.
func (s *source) journalLines(ctx context.Context, q ports.ReadModelQuery) (ports.Report, error) {
	_, header, err := s.bookHeader(ctx, q)
	if err != nil {
		return ports.Report{}, err
	}
	from, err := fromDate(q)
	if err != nil {
		return ports.Report{}, err
	}
	return s.lines(ctx, q, header, gldb.JournalLinePageParams{Upto: int64(q.Known), FromDate: date(from), Account: q.Params["account"], TaxCode: q.Params["tax_code"]})
}

// maxLine is higher than the number of any line.
const maxLine = 1 << 30

// lines reads a page of lines.
func (s *source) lines(ctx context.Context, q ports.ReadModelQuery, header ports.ReportFields, ask gldb.JournalLinePageParams) (ports.Report, error) {
	ask.PartitionID, ask.Version, ask.AsOf, ask.MaxRows = int32(q.Partition), int32(q.Version), date(q.AsOf), int32(q.Limit+1)
	if q.Cursor != "" {
		sequence, line, _ := strings.Cut(q.Cursor, ":")
		n, err1 := strconv.ParseInt(sequence, 10, 64)
		l, err2 := strconv.ParseInt(line, 10, 32)
		if errors.Join(err1, err2) != nil {
			return ports.Report{}, malformed()
		}
		ask.AfterSequence, ask.AfterLine = n, int32(l)
	}
	chart, err := loadChart(ctx, s.pool, s.queries, q)
	if err != nil {
		return ports.Report{}, err
	}
	names := make(map[string]string, len(chart))
	for _, a := range chart {
		names[a.Code] = a.Name
	}
	found, err := s.queries.JournalLinePage(ctx, s.pool, &ask)
	if err != nil {
		return ports.Report{}, fmt.Errorf("journal lines: %w", err)
	}
	report := ports.Report{Header: header}
	for i := range found {
		if i == q.Limit {
			last := found[i-1]
			report.HasMore, report.NextCursor = true, fmt.Sprintf("%d:%d", last.Sequence, last.LineNumber)
			break
		}
		row, err := newLineRow(&found[i])
		if err != nil {
			return report, err
		}
		row.AccountName = names[row.Account]
		report.Rows = append(report.Rows, row)
	}
	return report, nil
}

func newLineRow(r *gldb.JournalLinePageRow) (journalLineRow, error) {
	amount, err1 := fixed(r.Amount, r.Currency)
	functional, err2 := fixed(r.FunctionalAmount, r.FunctionalCurrency)
	return journalLineRow{
		JournalNumber: r.JournalNumber, EffectiveDate: dateText(r.EffectiveDate), DocumentDate: dateText(r.DocumentDate), RecordedAt: formatTime(r.RecordedAt), Type: r.JournalType,
		JournalDescription: r.JournalDescription, LineNumber: r.LineNumber, Account: r.Account, Description: r.Description, Side: r.Side,
		Amount: amount, Currency: r.Currency, FunctionalAmount: functional, FunctionalCurrency: r.FunctionalCurrency, Rate: r.Rate, RateDate: dateText(r.RateDate),
		TaxCode: r.TaxCode, Dimensions: r.Dimensions, FiscalYear: r.FiscalYear, Period: r.Period, SourceModule: r.SourceModule, SourceEventID: r.SourceEventID,
		CorrelationID: r.CorrelationID, IntentID: uuidText(r.IntentID), JournalID: r.JournalID, EventID: uuidText(r.EventID), Sequence: strconv.FormatInt(r.Sequence, 10),
	}, errors.Join(err1, err2)
}
