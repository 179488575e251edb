package gl

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strconv"

	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/domain/concurrency"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/money"
	"github.com/erpbackbone/backbone/modules/gl/contract"
	"github.com/erpbackbone/backbone/modules/gl/domain"
)

func accountChangeTypes() []module.EventType {
	changed := explained(domain.EventAccountChanged, "An account of the chart changed; the data has the whole account as it is now.")
	changed.Redactable = append(changed.Redactable, "$.name")
	return []module.EventType{changed}
}

func accountChangeIntents() []module.IntentType {
	return []module.IntentType{
		{Type: "gl.change_account", Description: "Change an account of the chart.", Emits: []string{domain.EventAccountChanged}, Plan: planChangeAccount},
	}
}

// changedAccount is the data of gl.account.changed.
type changedAccount struct {
	domain.Account
	Reason string `json:"reason"`
}

// planChangeAccount lays the payload's members over the account. An absent member keeps its
// value. null removes a date, "" the parent, and [] a list.
func planChangeAccount(ctx context.Context, in module.Input, s module.State) (module.Plan, error) {
	var named accountChange
	if err := module.DecodePayload(in.Payload, &named); err != nil {
		return module.Plan{}, err
	}
	ledger := contract.NewLedger(s)
	was, err := ledger.Account(ctx, named.Code)
	if err != nil {
		return module.Plan{}, fault.WithField(err, "/code")
	}
	change := changedAccount{Account: was.Clone()}
	if err := module.DecodePayload(in.Payload, &change); err != nil {
		return module.Plan{}, err
	}
	now := change.Account
	if now.Type != was.Type && now.NormalSide == was.NormalSide && !hasMember(in.Payload, "normal_side") {
		now.NormalSide = normalSide(now.Type)
		change.NormalSide = now.NormalSide
	}
	if err := checkAccountChange(ctx, in, ledger, was, now); err != nil {
		return module.Plan{}, err
	}
	if fixed := changedFixedMembers(was, now); len(fixed) > 0 {
		if err := checkUnused(ctx, s, now.Code, fixed); err != nil {
			return module.Plan{}, err
		}
	}
	known, err := loadFacts(ctx, ledger)
	return module.Plan{
		Events: []event.Draft{{
			Type: domain.EventAccountChanged, EffectiveDate: in.Date(), Stream: domain.AccountStream(now.Code),
			Data: change, Entities: entity("account", now.Code),
		}},
		Facts: known,
	}, err
}

func hasMember(payload json.RawMessage, name string) bool {
	var members map[string]json.RawMessage
	if err := json.Unmarshal(payload, &members); err != nil {
		return false
	}
	_, found := members[name]
	return found
}

func checkAccountChange(ctx context.Context, in module.Input, ledger *contract.Ledger, was, now domain.Account) error {
	for i, code := range now.Currencies {
		if slices.Contains(was.Currencies, code) {
			continue // it may have been retired since
		}
		if _, err := money.LookupCurrency(code, in.Today.Time()); err != nil {
			return fault.WithField(err, "/currencies/"+strconv.Itoa(i))
		}
	}
	if err := checkActive(now.ActiveFrom, now.ActiveTo); err != nil {
		return err
	}
	if now.Parent == was.Parent {
		return nil
	}
	return checkParent(ctx, ledger, now)
}

// maxChartDepth bounds the levels of the chart of accounts above a changed account.
const maxChartDepth = 50

// checkParent refuses a parent that is not in the chart, and one that is the account itself
// or below it.
func checkParent(ctx context.Context, ledger *contract.Ledger, account domain.Account) error {
	above := account.Parent
	for range maxChartDepth {
		if above == "" {
			return nil
		}
		if above == account.Code {
			break
		}
		parent, err := ledger.Account(ctx, above)
		if err != nil {
			return fault.WithField(err, "/parent")
		}
		above = parent.Parent
	}
	return fault.New(fault.Invalid, "gl.account.parent_invalid",
		"account %s is account %s itself, below it, or more than %d levels deep; name another parent", account.Parent, account.Code, maxChartDepth).
		WithField("/parent").With("account", account.Code).With("parent", account.Parent)
}

// changedFixedMembers lists the members that differ and may not change once the account has
// lines.
func changedFixedMembers(was, now domain.Account) []string {
	var out []string
	if was.Type != now.Type {
		out = append(out, "type")
	}
	if was.NormalSide != now.NormalSide {
		out = append(out, "normal_side")
	}
	if was.Control != now.Control {
		out = append(out, "control")
	}
	return out
}

// maxJournalsSearched bounds how many journals checkUnused reads. Journals carry no tag per
// account, so the search reads all of them; with more the account counts as used.
const maxJournalsSearched = 50_000

var errStopSearch = errors.New("the search has its answer")

// checkUnused refuses a change of members that are fixed once the account has lines. It
// stops at the first journal that has one. That no further journal is posted becomes an
// append condition, so the change and the account's first line cannot both be appended.
func checkUnused(ctx context.Context, s module.State, code string, fixed []string) error {
	journals, used := 0, ""
	err := s.Decide(ctx, module.Projector{
		Items: []concurrency.Item{{Types: []string{domain.EventJournalPosted}}},
		Apply: func(_ event.Recorded, data []byte) error {
			if journals++; journals > maxJournalsSearched {
				return errStopSearch
			}
			j, err := domain.DecodeJournal(data)
			if err != nil {
				return err
			}
			if slices.ContainsFunc(j.Lines, func(l domain.Line) bool { return l.Account == code }) {
				used = j.JournalNumber
				return errStopSearch
			}
			return nil
		},
	})
	if err == nil || !errors.Is(err, errStopSearch) {
		return err
	}
	refusal := fault.New(fault.FailedPrecondition, "gl.account.in_use",
		"journal %s has a line on account %s, so its type, normal side and control stay; define another account", used, code)
	if used == "" {
		refusal = fault.New(fault.FailedPrecondition, "gl.account.in_use",
			"the ledger has more than %d journals, too many to see that account %s has no line; define another account", maxJournalsSearched, code)
	}
	return refusal.WithField("/"+fixed[0]).With("account", code).With("members", fixed)
}
