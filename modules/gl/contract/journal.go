package contract

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/money"
	"github.com/erpbackbone/backbone/modules/gl/domain"
)

// DimensionDepartment is the dimension that every journal has as a whole.
const DimensionDepartment = "department"

// SubledgerJournal is a journal that another module's event causes.
type SubledgerJournal struct {
	SourceModule     string // module whose period is checked and whose control accounts may be used: "ap"
	CausedByIndex    int    // 1-based index of the causing draft in the plan; 0: none
	CausedBy         event.ID
	SourceEventToken string // id of the causing event: EventID(in, i).String()
	Description      string // must name no person: journals have no sealed fields
	PostingDate      event.Date
	DocumentDate     DocumentDate // of the paper that it books; zero for none
	Currency         string
	Dimensions       map[string]string // of the envelope; department falls back to the ledger's default
	Lines            []SubledgerLine
	JournalID        event.ID // from Input.DocumentID
	SeriesToken      string   // "" is SeriesToken(JournalID)
}

// SubledgerLine is a line of a journal to plan. Amount is not negative: the side gives the
// direction.
type SubledgerLine struct {
	Account          string
	Side             Side
	Amount           money.Number  // in Currency
	Currency         string        // "" is the journal's
	FunctionalAmount *money.Number // replaces the conversion: for carrying amounts, and for exchange differences on lines of amount 0
	Description      string
	Dimensions       map[string]string // missing ones that the account requires come from the journal, then from the ledger's defaults
	TaxCode          string
	Control          bool // the line on the module's control account
}

// PlannedJournal is the draft of a journal, with the rules and the period for the caller's
// plan.
type PlannedJournal struct {
	Draft   event.Draft
	Journal domain.JournalPosted
	Lines   []PostedLine // as posted, with functional amounts, the rounding line last if there is one
	Control *PostedLine  // the first control line; nil if there is none
	Rules   []event.RuleEvaluation
	Period  Period
}

// PlanSubledgerJournal plans a journal of type subledger from a module's lines. It checks
// period, accounts and dimensions and converts each line once to functional currency. The
// lines must balance exactly in every currency. If conversion leaves a difference of at
// most half a minor unit per converted line, it adds a rounding line; a larger one is a
// fault. Faults: those of CheckPeriod, Settings and Rate,
// gl.journal.line_count, gl.journal.unbalanced, gl.journal.unbalanced_functional,
// gl.account.*, gl.ledger.profile_missing, money.*.
func PlanSubledgerJournal(ctx context.Context, l *Ledger, j SubledgerJournal) (PlannedJournal, error) {
	return PlanJournal(ctx, l, Journal{SubledgerJournal: j, Type: domain.Subledger})
}

// Journal is a journal of any type, for the ledger's own intents.
type Journal struct {
	SubledgerJournal
	Type         JournalType
	ReversalDate *event.Date
	RecurringID  string
}

// PlanJournal is PlanSubledgerJournal for a journal of any type. For a journal without a
// source module it checks the ledger's own period and refuses lines on control accounts
// (gl.account.control_account).
func PlanJournal(ctx context.Context, l *Ledger, j Journal) (PlannedJournal, error) {
	if n := len(j.Lines); n < domain.MinLines || n > domain.MaxLines {
		return PlannedJournal{}, domain.LineCountFault(n)
	}
	settings, err := l.Settings(ctx)
	if err != nil {
		return PlannedJournal{}, err
	}
	moduleName := j.SourceModule
	if moduleName == "" {
		moduleName = ModuleName
	}
	period, err := l.CheckPeriod(ctx, moduleName, j.PostingDate)
	if err != nil {
		return PlannedJournal{}, err
	}
	if err := l.checkReversalDate(ctx, moduleName, j); err != nil {
		return PlannedJournal{}, err
	}
	dimensions, err := l.envelopeDimensions(ctx, settings, j.Dimensions, j.PostingDate)
	if err != nil {
		return PlannedJournal{}, err
	}
	lines, control, err := l.convertLines(ctx, settings, &j, dimensions)
	if err != nil {
		return PlannedJournal{}, err
	}
	if err := domain.CheckBalance(lines); err != nil {
		return PlannedJournal{}, err
	}
	lines, rounded, err := l.addRoundingLine(ctx, settings, j.PostingDate, lines)
	if err != nil {
		return PlannedJournal{}, err
	}
	posted := domain.JournalPosted{
		JournalType: j.Type, JournalID: j.JournalID.String(), Description: j.Description, DocumentDate: j.DocumentDate, ReversalDate: j.ReversalDate,
		RecurringID: j.RecurringID, SourceModule: j.SourceModule, SourceEventID: j.SourceEventToken,
		FunctionalCurrency: settings.FunctionalCurrency, FiscalYear: period.FiscalYear, Period: period.ID, Lines: lines,
	}
	plan, err := draftJournal(posted, j.SubledgerJournal, dimensions, period)
	if err != nil {
		return PlannedJournal{}, err
	}
	if control >= 0 {
		plan.Control = &plan.Lines[control]
	}
	plan.Rules = append(plan.Rules, roundingRule(rounded))
	return plan, nil
}

// checkReversalDate refuses a reversal date that is not after the posting date, or lies in a
// period that is closed for good.
func (l *Ledger) checkReversalDate(ctx context.Context, moduleName string, j Journal) error {
	if j.ReversalDate == nil {
		return nil
	}
	refuse := func(detail string, args ...any) error {
		return fault.New(fault.Invalid, "gl.journal.reversal_date_invalid", detail, args...).WithField("/reversal_date")
	}
	if *j.ReversalDate <= j.PostingDate {
		return refuse("the reversal date %s is not after the posting date %s; use a later day", *j.ReversalDate, j.PostingDate)
	}
	c, err := l.loadCalendar(ctx)
	if err != nil {
		return err
	}
	_, span, found := c.Find(*j.ReversalDate)
	if !found {
		return nil // its year is defined later
	}
	state, err := l.periodState(ctx, moduleName, span.Period)
	if err != nil {
		return err
	}
	if state == domain.PeriodHardClosed {
		return refuse("the reversal date %s is in period %s, which is closed for good; use a day of a later period", *j.ReversalDate, span.Period)
	}
	return nil
}

// draftJournal adds the number token and the totals, runs the checks that every append of
// a journal passes, and makes the draft.
func draftJournal(posted domain.JournalPosted, j SubledgerJournal, dimensions map[string]string, period Period) (PlannedJournal, error) {
	token := j.SeriesToken
	if token == "" {
		token = SeriesToken(j.JournalID)
	}
	posted.JournalNumber = token
	posted.TotalDebit, posted.TotalCredit = domain.FunctionalTotals(posted.Lines)
	if err := posted.Check(); err != nil {
		return PlannedJournal{}, err
	}
	tags := slices.Concat(period.Tags, []string{NumberTag(token)}, stateTags(posted))
	if posted.RecurringID != "" {
		tags = append(tags, TagRecurring)
	}
	return PlannedJournal{
		Draft: event.Draft{
			Type: EventJournalPosted, EffectiveDate: j.PostingDate, Stream: domain.JournalStream(posted.JournalID),
			CausedBy: j.CausedBy, CausedByIndex: j.CausedByIndex, Data: posted, Dimensions: dimensions,
			Entities: []event.EntityRef{{Type: "journal", ID: posted.JournalID, Role: "subject"}},
			Tags:     tags,
			Series:   []event.SeriesNumber{domain.JournalSeries(posted.JournalType, period.FiscalYear, token)},
		},
		Journal: posted,
		Lines:   posted.Lines,
		Rules: []event.RuleEvaluation{period.Rule(), {
			RuleID: "gl.journal.balance", RuleName: "Debit equals credit in every currency", Result: event.RuleFired,
			ActionsTaken: []string{"accept"},
		}},
		Period: period,
	}, nil
}

func roundingRule(rounded bool) event.RuleEvaluation {
	r := event.RuleEvaluation{RuleID: "gl.journal.rounding", RuleName: "Difference of conversion", Result: event.RuleConditionFalse}
	if rounded {
		r.Result, r.ActionsTaken = event.RuleFired, []string{"add_rounding_line"}
	}
	return r
}

// envelopeDimensions returns the journal's dimensions with the default department filled
// in, and checks their values.
func (l *Ledger) envelopeDimensions(ctx context.Context, s Settings, given map[string]string, date event.Date) (map[string]string, error) {
	out := maps.Clone(given)
	if out == nil {
		out = map[string]string{}
	}
	if out[DimensionDepartment] == "" {
		value := s.DefaultDimensions[DimensionDepartment]
		if value == "" {
			return nil, fault.New(fault.FailedPrecondition, "gl.account.dimension_missing",
				"the journal has no department and the ledger no default; send dimensions.department").
				WithField("/dimensions/department").With("dimension", DimensionDepartment)
		}
		out[DimensionDepartment] = value
	}
	return out, l.checkDimensions(ctx, out, date, "")
}

// isSubledgerDimension reports whether the dimension's values are master data of a
// subledger, which checks them, and are not defined in the ledger.
func isSubledgerDimension(dimension string) bool {
	return dimension == "vendor" || dimension == "customer"
}

func (l *Ledger) checkDimensions(ctx context.Context, dimensions map[string]string, date event.Date, at string) error {
	for _, name := range slices.Sorted(maps.Keys(dimensions)) {
		if isSubledgerDimension(name) {
			continue
		}
		v, found, err := l.dimensionValue(ctx, name, dimensions[name])
		if err != nil {
			return err
		}
		if !found || !v.ActiveOn(date) {
			why := "is not defined"
			if found {
				why = "is not active on " + date.String()
			}
			return fault.New(fault.FailedPrecondition, "gl.account.dimension_unknown",
				"value %q of dimension %q %s; define it with gl.define_dimension_value or use another", dimensions[name], name, why).
				WithField(at+"/dimensions/"+name).With("dimension", name).With("value", dimensions[name])
		}
	}
	return nil
}

// convertLines checks and converts the lines. control is the index of the first control
// line, -1 if there is none.
func (l *Ledger) convertLines(ctx context.Context, s Settings, j *Journal, envelope map[string]string) (out []PostedLine, control int, err error) {
	control = -1
	out = make([]PostedLine, 0, len(j.Lines)+1)
	for i := range j.Lines {
		in := &j.Lines[i]
		at := fmt.Sprintf("/lines/%d", i)
		currency := in.Currency
		if currency == "" {
			currency = j.Currency
		}
		account, err := l.postingAccount(ctx, in, j, currency, at)
		if err != nil {
			return nil, 0, err
		}
		line := PostedLine{
			LineNumber: i + 1, Account: in.Account, AccountName: account.Name, Side: in.Side, Amount: in.Amount,
			Currency: currency, Description: in.Description, TaxCode: in.TaxCode,
		}
		if line.Dimensions, err = l.lineDimensions(ctx, s, account, in.Dimensions, envelope, j.PostingDate, at); err != nil {
			return nil, 0, err
		}
		if err := l.convert(ctx, &line, in.FunctionalAmount, j.PostingDate, at); err != nil {
			return nil, 0, err
		}
		if in.Control && control < 0 {
			control = i
		}
		out = append(out, line)
	}
	return out, control, nil
}

// postingAccount loads the account of a line and checks that the line may be posted to it.
func (l *Ledger) postingAccount(ctx context.Context, in *SubledgerLine, j *Journal, currency, at string) (Account, error) {
	account, err := l.Account(ctx, in.Account)
	if err != nil {
		return Account{}, fault.WithField(err, at+"/account")
	}
	refuse := func(code, detail string, args ...any) (Account, error) {
		return Account{}, fault.New(fault.FailedPrecondition, code, detail, args...).
			WithField(at+"/account").With("account", in.Account)
	}
	switch {
	case l.accounts[in.Account].Blocked:
		return refuse("gl.account.blocked", "account %s is blocked; unblock it or use another", in.Account)
	case !account.Postable:
		return refuse("gl.account.not_postable", "account %s only sums up accounts below it; post to one below it", in.Account)
	case !account.ActiveOn(j.PostingDate):
		return refuse("gl.account.inactive", "account %s is not active on %s; use another account or date", in.Account, j.PostingDate)
	case !account.AcceptsCurrency(currency):
		return refuse("gl.account.currency_not_allowed", "account %s takes no amounts in %s; use another account", in.Account, currency)
	case account.IsControl() && (!in.Control || account.Control != j.SourceModule):
		return refuse("gl.account.control_account", "account %s belongs to the subledger %s and takes no other line; post there", in.Account, account.Control)
	case in.Control && !account.IsControl():
		return refuse("gl.account.control_account", "account %s is no control account of %s; correct the posting profile", in.Account, j.SourceModule)
	}
	return account, nil
}

// CheckLine checks that a line with the account and dimensions could be posted on the date by
// hand or from a document: the checks of PlanJournal for one line, without its amount. Faults:
// gl.account.*, gl.ledger.not_configured.
func (l *Ledger) CheckLine(ctx context.Context, account, currency string, dimensions map[string]string, date event.Date) error {
	s, err := l.Settings(ctx)
	if err != nil {
		return err
	}
	chart, err := l.postingAccount(ctx, &SubledgerLine{Account: account}, &Journal{SubledgerJournal: SubledgerJournal{PostingDate: date}}, currency, "")
	if err != nil {
		return err
	}
	_, err = l.lineDimensions(ctx, s, chart, dimensions, nil, date, "")
	return err
}

// lineDimensions fills in the dimensions that the account requires and checks all values.
func (l *Ledger) lineDimensions(ctx context.Context, s Settings, account Account, own, envelope map[string]string, date event.Date, at string) (map[string]string, error) {
	out := maps.Clone(own)
	for _, name := range account.RequiredDimensions {
		if out[name] != "" {
			continue
		}
		value := envelope[name]
		if value == "" {
			value = s.DefaultDimensions[name]
		}
		if value == "" {
			return nil, fault.New(fault.FailedPrecondition, "gl.account.dimension_missing",
				"account %s needs dimension %s; add it to the line", account.Code, name).
				WithField(at+"/dimensions/"+name).With("account", account.Code).With("dimension", name)
		}
		if out == nil {
			out = map[string]string{}
		}
		out[name] = value
	}
	return out, l.checkDimensions(ctx, out, date, at)
}

// convert checks the line's amount and sets its functional amount, rate and rate date.
func (l *Ledger) convert(ctx context.Context, line *PostedLine, given *money.Number, date event.Date, at string) error {
	book, err := l.Functional(ctx)
	if err != nil {
		return err
	}
	currency, err := money.LookupCurrency(line.Currency, date.Time())
	if err != nil {
		return fault.WithField(err, at+"/currency")
	}
	if err := domain.CheckSideAmount(line.Amount, currency); err != nil {
		return fault.WithField(err, at+"/amount")
	}
	if given != nil {
		if err := domain.CheckSideAmount(*given, book); err != nil {
			return fault.WithField(err, at+"/functional_amount")
		}
		line.FunctionalAmount = *given
		return nil
	}
	rate, rateDate, err := l.Rate(ctx, currency.Code, book.Code, date)
	if err != nil {
		return fault.WithField(err, at+"/currency")
	}
	line.FunctionalAmount, line.Rate = line.Amount, rate
	if currency.Code != book.Code {
		line.FunctionalAmount, line.RateDate = money.Convert(line.Amount, rate, book), &rateDate
	}
	return nil
}

// addRoundingLine appends a line on the rounding account for the difference that
// conversion left between debit and credit. It refuses a difference of more than half a
// minor unit per converted line.
func (l *Ledger) addRoundingLine(ctx context.Context, s Settings, date event.Date, lines []PostedLine) ([]PostedLine, bool, error) {
	debit, credit := domain.FunctionalTotals(lines)
	difference := debit.Sub(credit)
	if difference.IsZero() {
		return lines, false, nil
	}
	book, err := l.Functional(ctx)
	if err != nil {
		return nil, false, err
	}
	converted, currency := 0, ""
	for i := range lines {
		if lines[i].RateDate != nil {
			converted++
			if currency == "" {
				currency = lines[i].Currency
			}
		}
	}
	units := difference.Abs()
	for range book.MinorUnit {
		units = units.Mul(money.FromInt(10))
	}
	if units.Mul(money.FromInt(2)).Cmp(money.FromInt(int64(converted))) > 0 {
		return nil, false, domain.UnbalancedFunctionalFault(book, debit, credit)
	}
	account, err := l.ProfileAccount(ctx, RoleRounding)
	if err != nil {
		return nil, false, err
	}
	chart, err := l.Account(ctx, account)
	if err != nil {
		return nil, false, err
	}
	line := PostedLine{
		LineNumber: len(lines) + 1, Account: account, AccountName: chart.Name, Side: Credit,
		Currency: currency, FunctionalAmount: difference.Abs(), Description: "Rounding of conversion",
	}
	if difference.Sign() < 0 {
		line.Side = Debit
	}
	if line.Dimensions, err = l.lineDimensions(ctx, s, chart, nil, nil, date, ""); err != nil {
		return nil, false, err
	}
	return append(lines, line), true, nil
}
