package gl

import (
	"context"
	"strconv"
	"strings"

	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/modules/gl/domain"
)

func load[T any](ctx context.Context, s module.State, id event.StreamID) (T, error) {
	state, _, err := module.Load[T](ctx, s, id.Type, id.ID)
	return state, err
}

func loadCalendar(ctx context.Context, s module.State) (*domain.Calendar, error) {
	return load[*domain.Calendar](ctx, s, domain.CalendarStream())
}

func loadPeriod(ctx context.Context, s module.State, moduleName, period string) (*domain.ModulePeriod, error) {
	return load[*domain.ModulePeriod](ctx, s, domain.PeriodStream(moduleName, period))
}

func loadAccount(ctx context.Context, s module.State, code string) (*domain.AccountState, error) {
	return load[*domain.AccountState](ctx, s, domain.AccountStream(code))
}

// wrongState is the fault for an intent that a thing's state does not allow.
func wrongState(noun, what, state string, allowed ...string) error {
	return fault.New(fault.FailedPrecondition, noun+".wrong_state",
		"%s is %s; this needs %s", what, state, strings.Join(allowed, " or ")).
		With("state", state).With("allowed_states", allowed)
}

func withField(err error, pointer string) error {
	if f, ok := fault.As(err); ok {
		return f.WithField(pointer)
	}
	return err
}

func itoa(i int) string { return strconv.Itoa(i) }
