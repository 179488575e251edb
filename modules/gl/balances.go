package gl

import (
	"context"
	"errors"

	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/domain/concurrency"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/money"
	"github.com/erpbackbone/backbone/modules/gl/contract"
	"github.com/erpbackbone/backbone/modules/gl/domain"
)

// ReadModelBalances is the path of the read model from which planners read balances.
const ReadModelBalances = "balances"

// Values of the parameter statement.
const (
	statementIncome   = "income"   // accounts of type income and expense
	statementPosition = "position" // asset, liability and equity
)

func registerBalances(r *module.Registrar) {
	r.ReadModel(module.ReadModel{
		Name: ReadModelBalances, Projection: ProjectionLedger,
		Description: "Balances per account, currency and combination of line dimensions, as of an effective date and as known at a recorded time. Rows whose two balances are 0 are left out.",
		Params: []module.Param{
			{Name: "from", Type: module.ParamDate, Description: "first effective date that counts"},
			{Name: "account", Type: module.ParamString, Description: "only this account"},
			{Name: "statement", Type: module.ParamString, Description: "income: accounts of type income and expense; position: all others of the chart"},
		},
		Columns: []module.Column{
			{Name: "account", Type: "string", Description: "account code"},
			{Name: "name", Type: "string", Description: "name of the account"},
			{Name: "type", Type: "string", Description: "asset, liability, equity, income or expense"},
			{Name: "currency", Type: "string", Description: "ISO 4217 code of the lines"},
			{Name: "dimensions", Type: "object", Description: "of the lines"},
			{Name: "balance", Type: "amount", Description: "debit less credit, in currency"},
			{Name: "functional_balance", Type: "amount", Description: "debit less credit, functional currency"},
		},
	})
}

// balancesQuery selects balances for a plan.
type balancesQuery struct {
	from, through event.Date // from 0: since the first line
	account       string     // "": all
	statement     string     // "": all
	tags          []string   // of the journals that make up the balances
}

// readBalances reads balances as of the newest event. A journal with one of the tags that
// commits later makes the plan again.
func readBalances(ctx context.Context, s module.State, q balancesQuery) ([]domain.Balance, error) {
	read := module.ReportRead{Path: contract.ModuleName + "/" + ReadModelBalances, Params: map[string]string{}, AsOf: q.through}
	if q.from != 0 {
		read.Params["from"] = q.from.String()
	}
	if q.account != "" {
		read.Params["account"] = q.account
	}
	if q.statement != "" {
		read.Params["statement"] = q.statement
	}
	for _, tag := range q.tags {
		read.Items = append(read.Items, concurrency.Item{Types: []string{domain.EventJournalPosted}, Tags: []string{tag}})
	}
	rows, err := module.ReportRows[struct {
		Account           string            `json:"account"`
		Name              string            `json:"name"`
		Type              string            `json:"type"`
		Currency          string            `json:"currency"`
		Dimensions        map[string]string `json:"dimensions"`
		Balance           string            `json:"balance"`
		FunctionalBalance string            `json:"functional_balance"`
	}](ctx, s, read)
	if err != nil {
		return nil, err
	}
	out := make([]domain.Balance, len(rows))
	for i, r := range rows {
		var amount, functional money.Number
		if err := errors.Join(amount.Scan(r.Balance), functional.Scan(r.FunctionalBalance)); err != nil {
			return nil, err
		}
		out[i] = domain.Balance{
			Account: r.Account, AccountName: r.Name, AccountType: r.Type, Currency: r.Currency, Dimensions: r.Dimensions,
			Amount: amount, Functional: functional,
		}
	}
	return out, nil
}

// tagsThrough lists tags that every journal up to the end of a period has one of: those of
// the fiscal years before its own, and of the periods of its own. Postings into later periods
// have none.
func tagsThrough(c *domain.Calendar, span domain.PeriodSpan) (tags []string) {
	for _, y := range c.Years() {
		if y.End < span.Start {
			tags = append(tags, contract.YearTag(y.Label))
			continue
		}
		for _, p := range y.Periods {
			if p.Start <= span.Start {
				tags = append(tags, contract.PeriodTag(p.Period))
			}
		}
	}
	return tags
}
