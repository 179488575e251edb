package postgres

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/erpbackbone/backbone/adapters/plugin"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/money"
	"github.com/erpbackbone/backbone/modules/ap/adapters/postgres/internal/apdb"
	"github.com/erpbackbone/backbone/modules/ap/contract"
	"github.com/erpbackbone/backbone/ports"
)

// The general ledger's event of a journal, and its streams.
const (
	eventJournalPosted = "gl.journal.posted"
	streamJournal      = "gl.journal"
)

// TaxProjection writes ap.tax: the tax lines of journals that accounts payable posted. It is
// stateless and idempotent.
type TaxProjection struct{ queries *apdb.Queries }

var (
	_ ports.ProjectionHandler  = (*TaxProjection)(nil)
	_ ports.ProjectionResetter = (*TaxProjection)(nil)
	_ ports.ProjectionTables   = (*TaxProjection)(nil)
	_ ports.ProjectionTargets  = (*TaxProjection)(nil)
)

// NewTaxProjection makes the handler of the projection ap.tax.
func NewTaxProjection() *TaxProjection { return &TaxProjection{queries: apdb.New()} }

// The tables of ap.tax.
var (
	taxSettingsTable = ports.ProjectionTable{Schema: "ap", Name: "tax_settings", Key: []string{"sequence", "tax_group"}}
	taxLinesTable    = ports.ProjectionTable{Schema: "ap", Name: "tax_lines", Key: []string{"sequence", "line_number"}}
)

// Tables implements ports.ProjectionTables.
func (p *TaxProjection) Tables() []ports.ProjectionTable {
	return []ports.ProjectionTable{taxSettingsTable, taxLinesTable}
}

// Targets implements ports.ProjectionTargets. Lines have no column with the journal's id; they
// are found by the sequence of its event.
func (p *TaxProjection) Targets() []ports.ProjectionTarget {
	return []ports.ProjectionTarget{
		{Streams: []string{streamJournal}, Tables: []ports.TargetTable{{ProjectionTable: taxLinesTable}}},
		{Streams: []string{streamLedger}, ID: mainLedger, Tables: []ports.TargetTable{{ProjectionTable: taxSettingsTable}}},
	}
}

// Reset implements ports.ProjectionResetter.
func (p *TaxProjection) Reset(ctx context.Context, tx ports.ProjectionTx, b ports.ProjectionBatch) error {
	return plugin.DeleteRows(ctx, tx, b, p.Tables())
}

// Apply implements ports.ProjectionHandler; tx must be a pgx.Tx.
func (p *TaxProjection) Apply(ctx context.Context, tx ports.ProjectionTx, b ports.ProjectionBatch) error {
	db, err := plugin.Tx(tx)
	if err != nil {
		return err
	}
	lines := apdb.TaxLineInsertParams{PartitionID: int32(b.Partition), Version: int32(b.Version)}
	for i := range b.Events {
		e := &b.Events[i]
		switch e.Type {
		case eventLedgerConfigured:
			err = p.addSettings(ctx, db, int32(b.Version), e)
		case eventJournalPosted:
			err = addTaxLines(&lines, e)
		}
		if err != nil {
			return fmt.Errorf("event %s: %w", e.ID, err)
		}
	}
	if len(lines.Sequences) == 0 {
		return nil
	}
	return p.queries.TaxLineInsert(ctx, db, &lines)
}

func (p *TaxProjection) addSettings(ctx context.Context, db pgx.Tx, version int32, e *event.Recorded) error {
	data, err := e.Data()
	if err != nil {
		return err
	}
	var s struct {
		FunctionalCurrency string `json:"functional_currency"`
		TaxGroups          map[string]struct {
			Rate          money.Number `json:"rate"`
			Account       string       `json:"account"`
			OutputAccount string       `json:"output_account"`
		} `json:"tax_groups"`
		Profile map[string]string `json:"posting_profile"`
	}
	if err := json.Unmarshal(data, &s); err != nil {
		return err
	}
	rows := &apdb.TaxSettingsInsertParams{
		PartitionID: int32(e.Partition), Version: version, Sequence: int64(e.Sequence), FunctionalCurrency: s.FunctionalCurrency,
		TaxGroups: []string{""}, Rates: []string{""}, InputAccounts: []string{""}, OutputAccounts: []string{""},
	}
	for _, name := range slices.Sorted(maps.Keys(s.TaxGroups)) {
		g := s.TaxGroups[name]
		if g.Account == "" {
			g.Account = s.Profile["input_tax"]
		}
		if g.OutputAccount == "" {
			g.OutputAccount = s.Profile["output_tax"]
		}
		rows.TaxGroups = append(rows.TaxGroups, name)
		rows.Rates = append(rows.Rates, g.Rate.String())
		rows.InputAccounts = append(rows.InputAccounts, g.Account)
		rows.OutputAccounts = append(rows.OutputAccounts, g.OutputAccount)
	}
	return p.queries.TaxSettingsInsert(ctx, db, rows)
}

// Parts of lines that the account does not tell apart: it is also that of a document's own lines, or
// was changed in the settings since.
const (
	partNotRecoverable = "not_recoverable"
	partWithholding    = "withholding"
	partRecoverable    = "recoverable"
	partOutput         = "output"
)

func addTaxLines(rows *apdb.TaxLineInsertParams, e *event.Recorded) error {
	data, err := e.Data()
	if err != nil {
		return err
	}
	var j struct {
		JournalNumber      string `json:"journal_number"`
		SourceModule       string `json:"source_module"`
		FunctionalCurrency string `json:"functional_currency"`
		Period             string `json:"period"`
		Lines              []struct {
			LineNumber  int32        `json:"line_number"`
			Account     string       `json:"account"`
			Side        string       `json:"debit_credit"`
			Amount      money.Number `json:"amount"`
			Currency    string       `json:"currency"`
			Functional  money.Number `json:"amount_in_reporting_currency"`
			Description string       `json:"description"`
			TaxCode     string       `json:"tax_code"`
		} `json:"lines"`
	}
	if err := json.Unmarshal(data, &j); err != nil {
		return err
	}
	if j.SourceModule != contract.ModuleName {
		return nil
	}
	body, err := e.Body()
	if err != nil {
		return err
	}
	documentID, paymentID := "", ""
	for _, about := range body.EntityRefs {
		switch about.Role {
		case contract.RoleDocument:
			documentID = about.ID
		case contract.RolePayment:
			paymentID = about.ID
		}
	}
	for _, l := range j.Lines {
		if l.TaxCode == "" {
			continue
		}
		part := ""
		switch {
		case l.Description == contract.TextNotRecoverable:
			part = partNotRecoverable
		case l.Description == contract.TextDiscountInputTax:
			part = partRecoverable
		case l.Description == contract.TextDiscountOutputTax:
			part = partOutput
		case strings.HasPrefix(l.Description, contract.TextWithholding):
			part = partWithholding
		}
		if l.Side == "credit" {
			l.Amount, l.Functional = l.Amount.Neg(), l.Functional.Neg()
		}
		rows.Sequences = append(rows.Sequences, int64(e.Sequence))
		rows.LineNumbers = append(rows.LineNumbers, l.LineNumber)
		rows.EffectiveDates = append(rows.EffectiveDates, date(e.EffectiveDate))
		rows.Periods = append(rows.Periods, j.Period)
		rows.TaxGroups = append(rows.TaxGroups, l.TaxCode)
		rows.Parts = append(rows.Parts, part)
		rows.Accounts = append(rows.Accounts, l.Account)
		rows.Currencies = append(rows.Currencies, l.Currency)
		rows.Amounts = append(rows.Amounts, l.Amount.String())
		rows.FunctionalAmounts = append(rows.FunctionalAmounts, l.Functional.String())
		rows.FunctionalCurrencies = append(rows.FunctionalCurrencies, j.FunctionalCurrency)
		rows.EventIds = append(rows.EventIds, eventUUID(e.ID))
		rows.JournalNumbers = append(rows.JournalNumbers, j.JournalNumber)
		rows.DocumentIds = append(rows.DocumentIds, documentID)
		rows.PaymentIds = append(rows.PaymentIds, paymentID)
	}
	return nil
}
