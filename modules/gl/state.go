package gl

import (
	"context"
	"strings"

	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/modules/gl/domain"
)

func loadCalendar(ctx context.Context, s module.State) (*domain.Calendar, error) {
	return module.Load[*domain.Calendar](ctx, s, domain.CalendarStream())
}

func loadPeriod(ctx context.Context, s module.State, moduleName, period string) (*domain.ModulePeriod, error) {
	return module.Load[*domain.ModulePeriod](ctx, s, domain.PeriodStream(moduleName, period))
}

func loadAccount(ctx context.Context, s module.State, code string) (*domain.AccountState, error) {
	return module.Load[*domain.AccountState](ctx, s, domain.AccountStream(code))
}

// wrongStateFault makes the fault for an intent that the state of its subject does not
// allow. noun is the first part of the code, what describes the subject.
func wrongStateFault(noun, what, state string, allowed ...string) error {
	return fault.New(fault.FailedPrecondition, noun+".wrong_state",
		"%s is %s, and this needs %s; look at its events to see what happened", what, state, strings.Join(allowed, " or ")).
		With("state", state).With("allowed_states", allowed)
}
