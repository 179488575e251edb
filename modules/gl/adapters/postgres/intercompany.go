package postgres

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/money"
	"github.com/erpbackbone/backbone/modules/gl/adapters/postgres/internal/gldb"
	"github.com/erpbackbone/backbone/modules/gl/domain"
	"github.com/erpbackbone/backbone/ports"
)

// projectionLedger is the projection of journals, which gl.closing is read with.
const projectionLedger = "gl.ledger"

// NewIntercompany makes the source of gl/intercompany.
func NewIntercompany(pool *pgxpool.Pool) ports.ReadModelSource {
	return newSource(pool, (*source).intercompany)
}

// States of a pair, as one of its two legal entities sees it.
const (
	pairIncoming     = "incoming"
	pairUnderWay     = "under_way"
	pairComplete     = "complete"
	pairRefusedThere = "refused_there"
	pairRefused      = "refused"
	pairReversed     = "reversed"
)

type pairRow struct {
	PairID              string `json:"pair_id"`
	Counterparty        string `json:"counterparty"`
	BegunBy             string `json:"begun_by"`
	Date                string `json:"date"`
	State               string `json:"state"`
	Currency            string `json:"currency"`
	Amount              string `json:"amount"`
	CounterpartyAmount  string `json:"counterparty_amount"`
	Difference          string `json:"difference"`
	FunctionalAmount    string `json:"functional_amount"`
	JournalNumber       string `json:"journal_number"`
	JournalID           string `json:"journal_id"`
	CounterpartyJournal string `json:"counterparty_journal_id"`
	ActorID             string `json:"actor_id"`
	NextStep            string `json:"next_step"`
	EventID             string `json:"event_id"`

	effective event.Date
	beganHere bool
}

// pair collects the steps of both sides.
type pair struct {
	initiated                *gldb.PairStepsRow // by the legal entity that began it
	data                     stepPairData       // of initiated
	mirrored                 *gldb.PairStepsRow // by its counterparty
	mirroredData             stepPairData
	refusedHere, refusedFrom bool // refused by this side, by the other one
	latestHere               *gldb.PairStepsRow
}

func (s *source) intercompany(ctx context.Context, q ports.ReadModelQuery) (ports.Report, error) {
	ledger := ledgerQuery(q)
	book, header, err := s.bookHeader(ctx, ledger)
	if err != nil {
		return ports.Report{}, err
	}
	span, err := s.periodParam(ctx, ledger)
	if err != nil {
		return ports.Report{}, err
	}
	pairs, err := s.pairs(ctx, q, book)
	if err != nil {
		return ports.Report{}, err
	}
	var rows []any
	for _, r := range pairs {
		if span.Period != "" && (r.effective < span.Start || r.effective > span.End) || r.effective > q.AsOf ||
			isFiltered(q, "counterparty", r.Counterparty) || isFiltered(q, "state", r.State) {
			continue
		}
		rows = append(rows, r)
	}
	return wholeReport(q, header, rows)
}

// endOfTime is after any event.
var endOfTime = time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC)

// ledgerQuery is the query for the rows of the ledger's projection.
func ledgerQuery(q ports.ReadModelQuery) ports.ReadModelQuery {
	q.Version = q.Versions[projectionLedger]
	return q
}

// pairs reads the pairs that a legal entity takes part in, by date and id.
func (s *source) pairs(ctx context.Context, q ports.ReadModelQuery, book money.Currency) ([]pairRow, error) {
	until, err := time.Parse(time.RFC3339Nano, q.KnownAt)
	if err != nil {
		until = endOfTime
	}
	steps, err := s.queries.PairSteps(ctx, s.pool, &gldb.PairStepsParams{
		PartitionID: int32(q.Partition), Version: int32(q.Version), Known: int64(q.Known), TenantID: q.Entity.TenantID, LegalEntity: q.Entity.Code, Until: until,
	})
	if err != nil {
		return nil, fmt.Errorf("pairs: %w", err)
	}
	found := map[string]*pair{}
	var order, journals []string
	partitions := []int32{int32(q.Partition)}
	for i := range steps {
		step := &steps[i]
		p := found[step.Item]
		if p == nil {
			p = &pair{}
			found[step.Item], order = p, append(order, step.Item)
		}
		here := step.PartitionID == int32(q.Partition)
		if here {
			p.latestHere = step
		} else if !slices.Contains(partitions, step.PartitionID) {
			partitions = append(partitions, step.PartitionID)
		}
		switch step.Kind {
		case stepPairInitiated:
			p.initiated = step
			err = json.Unmarshal([]byte(step.Data), &p.data)
			journals = append(journals, p.data.JournalID)
		case stepPairMirrored:
			p.mirrored = step
			err = json.Unmarshal([]byte(step.Data), &p.mirroredData)
			journals = append(journals, p.mirroredData.JournalID)
		case stepPairRefused:
			p.refusedHere, p.refusedFrom = p.refusedHere || here, p.refusedFrom || !here
		}
		if err != nil {
			return nil, fmt.Errorf("pair %s: %w", step.Item, err)
		}
	}
	amounts, err := s.pairAmounts(ctx, q, partitions, journals)
	if err != nil {
		return nil, err
	}
	reversed, err := s.reversedJournals(ctx, q)
	if err != nil {
		return nil, err
	}
	var rows []pairRow
	for _, id := range order {
		p := found[id]
		if p.initiated == nil { // the log of the legal entity that began it is not shown yet
			continue
		}
		row, err := p.row(q, id, amounts, reversed, book)
		if err != nil {
			return nil, fmt.Errorf("pair %s: %w", id, err)
		}
		rows = append(rows, row)
	}
	slices.SortStableFunc(rows, func(a, b pairRow) int { return int(a.effective) - int(b.effective) })
	return rows, nil
}

type journalKey struct {
	partition int32
	journal   string
}

// pairAmount is what a side's journal has on the account with the other side: its last line
// that moves money. Positive is due from the other one.
type pairAmount struct {
	number             string
	amount, functional money.Number
}

func (s *source) pairAmounts(ctx context.Context, q ports.ReadModelQuery, partitions []int32, journals []string) (map[journalKey]pairAmount, error) {
	lines, err := s.queries.PairLines(ctx, s.pool, &gldb.PairLinesParams{
		Version: int32(q.Versions[projectionLedger]), Partitions: partitions, JournalIds: journals,
	})
	if err != nil {
		return nil, fmt.Errorf("journals of pairs: %w", err)
	}
	out := map[journalKey]pairAmount{}
	for _, l := range lines {
		a := pairAmount{number: l.JournalNumber}
		if a.amount, err = number(l.Amount); err != nil {
			return nil, err
		}
		if a.functional, err = number(l.FunctionalAmount); err != nil {
			return nil, err
		}
		if l.Side == string(domain.Credit) {
			a.amount, a.functional = a.amount.Neg(), a.functional.Neg()
		}
		out[journalKey{l.PartitionID, l.JournalID}] = a // lines come in order, so the last one stays
	}
	return out, nil
}

func (s *source) reversedJournals(ctx context.Context, q ports.ReadModelQuery) (map[string]bool, error) {
	steps, err := s.queries.CloseSteps(ctx, s.pool, &gldb.CloseStepsParams{
		PartitionID: int32(q.Partition), Version: int32(q.Version), Known: int64(q.Known), Kinds: []string{stepReversed},
	})
	out := map[string]bool{}
	for _, r := range steps {
		out[r.Item] = true
	}
	return out, err
}

func (p *pair) row(q ports.ReadModelQuery, id string, amounts map[journalKey]pairAmount, reversed map[string]bool, book money.Currency) (pairRow, error) {
	own := int32(q.Partition)
	r := pairRow{
		PairID: id, BegunBy: p.initiated.LegalEntity, Counterparty: p.initiated.LegalEntity, Currency: p.data.Currency,
		effective: event.DateOf(p.initiated.Day.Time), EventID: uuidText(p.initiated.EventID),
	}
	r.Date = r.effective.String()
	r.beganHere = p.initiated.PartitionID == own
	var here, there pairAmount
	if r.beganHere {
		r.Counterparty, r.JournalID = p.initiated.Counterparty, p.data.JournalID
		here = amounts[journalKey{own, p.data.JournalID}]
		if p.mirrored != nil {
			r.CounterpartyJournal = p.mirroredData.JournalID
			there = amounts[journalKey{p.mirrored.PartitionID, p.mirroredData.JournalID}]
		}
	} else {
		r.CounterpartyJournal = p.data.JournalID
		there = amounts[journalKey{p.initiated.PartitionID, p.data.JournalID}]
		if p.mirrored != nil {
			r.JournalID = p.mirroredData.JournalID
			here = amounts[journalKey{own, p.mirroredData.JournalID}]
		}
	}
	if reversed[r.JournalID] {
		here.amount, here.functional = money.Number{}, money.Number{}
	}
	p.decide(&r, reversed)
	if p.latestHere != nil {
		r.ActorID, r.EventID = p.latestHere.ActorID, uuidText(p.latestHere.EventID)
	}
	currency, err := money.LookupCurrency(p.data.Currency, time.Time{})
	if err != nil {
		return r, err
	}
	r.JournalNumber = here.number
	r.Amount, r.CounterpartyAmount = here.amount.Fixed(currency.MinorUnit), there.amount.Fixed(currency.MinorUnit)
	r.Difference, r.FunctionalAmount = here.amount.Add(there.amount).Fixed(currency.MinorUnit), here.functional.Fixed(book.MinorUnit)
	return r, nil
}

// decide sets the state of the pair and its next step.
func (p *pair) decide(r *pairRow, reversed map[string]bool) {
	switch {
	case p.mirrored != nil:
		r.State = pairComplete
	case !r.beganHere && p.refusedHere:
		r.State = pairRefused
	case !r.beganHere:
		r.State, r.NextStep = pairIncoming, "gl.mirror_intercompany or gl.refuse_intercompany here"
	case p.refusedHere && reversed[r.JournalID]:
		r.State = pairReversed
	case p.refusedHere:
		r.State, r.NextStep = pairRefused, "gl.reverse_journal here"
	case p.refusedFrom:
		r.State, r.NextStep = pairRefusedThere, "gl.refuse_intercompany here"
	default:
		r.State, r.NextStep = pairUnderWay, "gl.mirror_intercompany in "+r.Counterparty
	}
}
