package module

import (
	"context"
	"slices"

	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/ports"
)

// EventTypes finds the types of events: ports.EventReader.
type EventTypes interface {
	TypesOf(ctx context.Context, events []ports.Cause) (map[ports.Cause]string, error)
}

// CheckCauses refuses causes that are in no log or that the caller does not see, in one query for
// all of them and without a query for none. unknown is the index of the first one that it refuses.
//
//	request.cause_unknown  NotFound, at /caused_by
func CheckCauses(ctx context.Context, log EventTypes, causes ...ports.Cause) (unknown int, err error) {
	if len(causes) == 0 {
		return 0, nil
	}
	types, err := log.TypesOf(ctx, causes)
	if err != nil {
		return 0, err
	}
	sight, err := SightOf(ctx)
	if err != nil {
		return 0, err
	}
	unknown = slices.IndexFunc(causes, func(c ports.Cause) bool {
		name, found := types[c]
		return !found || !sight.Sees(name)
	})
	if unknown < 0 {
		return 0, nil
	}
	return unknown, fault.New(fault.NotFound, "request.cause_unknown",
		"no event that you may see has this id; name the legal entity of the cause, or set allow_unknown_cause if it is in no log").WithField("/caused_by")
}
