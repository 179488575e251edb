package cli

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/erpbackbone/backbone/adapters/client"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/money"
)

// The schema that WriteSAFT writes.
const (
	saftNamespace = "urn:StandardAuditFile-Taxation-Financial:NO"
	saftVersion   = "1.30"
)

// SAFTResult counts what was written, and what its reader should know of.
type SAFTResult struct {
	Journals       int
	Ungrouped      int    // accounts without a code of the tax office
	OtherBook      int    // lines in another functional currency, which the trial balance leaves out too
	Unassigned     string // credit balance of control accounts, at the end, that is of no vendor; "" without accounts payable
	InexactAmounts int    // lines whose foreign amount the format cannot hold; their description has it
}

// summary says what was written, and what to look after.
func (r SAFTResult) summary() string {
	text := fmt.Sprintf("%d journals written; check them with xmllint --noout --schema Norwegian_SAF-T_Financial_Schema_v_1.30.xsd FILE", r.Journals)
	if r.Ungrouped > 0 {
		text += fmt.Sprintf("\n%d accounts have no code of the tax office; add them to grouping in the file of --company", r.Ungrouped)
	}
	if strings.Trim(r.Unassigned, "0.") != "" {
		text += fmt.Sprintf("\n%s on control accounts is of no vendor, so the vendors' balances do not add up to the accounts", r.Unassigned)
	}
	if r.OtherBook > 0 {
		text += fmt.Sprintf("\n%d lines in another functional currency were left out, as in the trial balance", r.OtherBook)
	}
	if r.InexactAmounts > 0 {
		text += fmt.Sprintf("\n%d foreign amounts have more than two decimals; the line's description has them", r.InexactAmounts)
	}
	return text
}

// WriteSAFT writes the Norwegian Standard Audit File - Tax, Financial, of a legal entity. The
// entries are collected in temporary files, one for each kind of journal, because their totals
// come before them. Sums that differ from the trial balance fail it; nothing is adjusted.
// Faults: export.company_incomplete, export.amount_not_representable, export.value_too_long,
// export.sums_differ.
func WriteSAFT(ctx context.Context, api API, out io.Writer, o Options, c Company) (result SAFTResult, err error) {
	r, err := newReader(ctx, api, o)
	if err != nil {
		return result, err
	}
	x := &saft{reader: r, company: c, journals: map[string]*journalSpool{}, analysis: newShortNames()}
	defer func() {
		for _, s := range x.journals {
			err = errors.Join(err, s.remove())
		}
	}()
	for _, step := range []func(context.Context) error{x.readCompany, x.readCreated, x.readPeriods, x.readTaxGroups, x.readBalances, x.readSuppliers, x.readEntries} {
		if err := step(ctx); err != nil {
			return result, err
		}
	}
	if err := x.checkSums(); err != nil {
		return result, err
	}
	buffered := bufio.NewWriter(out)
	if err := x.write(buffered); err != nil {
		return result, err
	}
	return x.result, buffered.Flush()
}

// saft writes one export.
type saft struct {
	*reader
	company  Company
	created  string // ISO date
	periods  map[string]fiscalPeriod
	groups   map[string]taxGroup
	balances []accountBalance
	// The trial balance's sums of the time, beside those of the lines.
	balanceDebit, balanceCredit money.Number
	debit, credit               money.Number
	suppliers                   []supplier
	journals                    map[string]*journalSpool
	analysis                    *shortNames
	result                      SAFTResult
}

// fiscalPeriod is the place of a period in its year, from 1.
type fiscalPeriod struct {
	number     int
	year       string // four digits
	start, end string
}

// taxGroup is a tax group of the ledger's settings.
type taxGroup struct {
	Rate               money.Number  `json:"rate"`
	Account            string        `json:"account"`
	OutputAccount      string        `json:"output_account"`
	RecoverablePercent *money.Number `json:"recoverable_percent"`
	Description        string        `json:"description"`
}

// accountBalance is an account with its debit balances.
type accountBalance struct {
	account
	opening, closing money.Number
}

// readCompany completes the declaration by the name of the legal entity.
func (x *saft) readCompany(ctx context.Context) error {
	if x.company.Name == "" {
		list, err := x.api.ListLegalEntities(ctx)
		if err != nil {
			return err
		}
		for _, le := range list.LegalEntities {
			if le.Code == x.options.LegalEntity {
				x.company.Name = le.Name
			}
		}
	}
	return x.company.requireHeader()
}

// readCreated takes the day of the newest event that the export knows for the day on which
// the file was made, so that the same question gives the same bytes.
func (x *saft) readCreated(ctx context.Context) error {
	noData := false
	events, err := x.api.ListEvents(ctx, client.ListEventsParams{
		StreamType: "scope", StreamID: x.options.LegalEntity, ToSequence: x.at.Sequence, Direction: "backward", Limit: 1, IncludeData: &noData,
	})
	if err != nil {
		return err
	}
	x.created = x.at.AsOf
	if len(events.Events) > 0 {
		x.created = events.Events[0].RecordedAt.UTC().Format("2006-01-02")
	}
	return nil
}

// readPeriods numbers the periods of each fiscal year.
func (x *saft) readPeriods(ctx context.Context) error {
	type row struct {
		FiscalYear string `json:"fiscal_year"`
		Period     string `json:"period"`
		Start      string `json:"start"`
		End        string `json:"end"`
	}
	var rows []row
	err := read(ctx, x.reader, "gl/periods", map[string]string{"module": "gl"}, func(p page[row]) error {
		rows = append(rows, p.Rows...)
		return nil
	})
	slices.SortFunc(rows, func(a, b row) int { return cmp.Compare(a.Start, b.Start) })
	x.periods = map[string]fiscalPeriod{}
	numbers, ends := map[string]int{}, map[string]string{}
	for _, r := range rows {
		ends[r.FiscalYear] = r.End
	}
	for _, r := range rows {
		numbers[r.FiscalYear]++
		year := r.FiscalYear
		if n, err := strconv.Atoi(year); err != nil || n < 1970 || n > 2100 {
			year = ends[r.FiscalYear][:4] // a label such as FY26 is named by the year in which it ends
		}
		x.periods[r.Period] = fiscalPeriod{number: numbers[r.FiscalYear], year: year, start: r.Start, end: r.End}
	}
	return err
}

// readTaxGroups reads the settings of the ledger that were known at the sequence.
func (x *saft) readTaxGroups(ctx context.Context) error {
	stream, err := x.api.ReadStream(ctx, "gl.ledger", "main", client.ReadStreamParams{
		LegalEntity: x.options.LegalEntity, Direction: "backward", KnownAt: "seq:" + x.at.Sequence, Count: 1,
	})
	if fault.KindOf(err) == fault.NotFound || err == nil && len(stream.Events) == 0 {
		return nil // the ledger was not configured by then
	}
	if err != nil {
		return err
	}
	var settings struct {
		TaxGroups map[string]taxGroup `json:"tax_groups"`
		Profile   map[string]string   `json:"posting_profile"`
	}
	if err := json.Unmarshal(stream.Events[0].Data, &settings); err != nil {
		return err
	}
	x.groups = settings.TaxGroups
	for name, g := range x.groups {
		g.Account = cmp.Or(g.Account, settings.Profile["input_tax"])
		g.OutputAccount = cmp.Or(g.OutputAccount, settings.Profile["output_tax"])
		x.groups[name] = g
	}
	return nil
}

// readBalances reads the trial balance: all accounts with a balance or lines, and those of
// the chart that take lines.
func (x *saft) readBalances(ctx context.Context) error {
	type row struct{ Account, Name, Type, Opening, Debit, Credit, Balance string }
	type balancePage struct {
		Accounts    []row  `json:"accounts"`
		TotalDebit  string `json:"total_debit"`
		TotalCredit string `json:"total_credit"`
		NextCursor  string `json:"next_cursor"`
	}
	found := map[string]accountBalance{}
	for code, a := range x.accounts {
		if a.Postable {
			found[code] = accountBalance{account: a}
		}
	}
	query := cloneWith(x.query, map[string]string{"from": x.options.From})
	for {
		var p balancePage
		if err := x.api.ReadModel(ctx, "gl/trial-balance", query, &p); err != nil {
			return err
		}
		for _, r := range p.Accounts {
			a, known := x.accounts[r.Account]
			if !known {
				a = account{Account: r.Account}
			}
			b := accountBalance{account: a}
			if err := errors.Join(b.opening.Scan(r.Opening), b.closing.Scan(r.Balance)); err != nil {
				return err
			}
			found[r.Account] = b
		}
		if err := errors.Join(x.balanceDebit.Scan(p.TotalDebit), x.balanceCredit.Scan(p.TotalCredit)); err != nil {
			return err
		}
		if p.NextCursor == "" {
			break
		}
		query.Set("cursor", p.NextCursor)
	}
	for _, b := range found {
		x.balances = append(x.balances, b)
		if _, grouped := x.company.Grouping[b.Account]; !grouped {
			x.result.Ungrouped++
		}
	}
	slices.SortFunc(x.balances, func(a, b accountBalance) int { return cmp.Compare(a.Account, b.Account) })
	return nil
}

// checkSums compares the lines with the trial balance. They differ only if one of both is wrong.
func (x *saft) checkSums() error {
	if x.debit.Equal(x.credit) && x.debit.Equal(x.balanceDebit) && x.credit.Equal(x.balanceCredit) {
		return nil
	}
	return fault.New(fault.FailedPrecondition, "export.sums_differ",
		"the lines have debit %s and credit %s, the trial balance %s and %s; nothing was written; run backbone verify and rebuild gl.ledger",
		x.debit, x.credit, x.balanceDebit, x.balanceCredit).WithNumbers(x.balanceDebit.String(), x.debit.String())
}

// previousDay is the day before the first one of the export.
func (x *saft) previousDay() (string, error) {
	from, err := event.ParseDate(x.options.From)
	if err != nil {
		return "", err
	}
	return from.AddDays(-1).String(), nil
}

// amountText writes an amount with the two decimals of SAF-T. Fault:
// export.amount_not_representable.
func amountText(n money.Number) (string, error) {
	text, fits := decimalText(n, 2, 18)
	if !fits {
		return "", fault.New(fault.FailedPrecondition, "export.amount_not_representable",
			"the amount %s has more than the two decimals or 18 digits of SAF-T; export the books as hledger or GoBD", n)
	}
	return text, nil
}

// decimalText writes a number with at least two decimals, if its decimals and digits are not
// too many.
func decimalText(n money.Number, decimals, digits int) (text string, fits bool) {
	text = n.Fixed(2)
	whole, fraction, _ := strings.Cut(strings.TrimPrefix(text, "-"), ".")
	return text, len(fraction) <= decimals && len(whole)+len(fraction) <= digits
}
