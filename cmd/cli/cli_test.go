package cli

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/domain/fault"
)

func TestErrorsSayWhatTheyAreAboutOnOneLine(t *testing.T) {
	t.Parallel()
	for want, err := range map[string]error{
		"there is no such event; check the id (event.not_found)":         fault.New(fault.NotFound, "event.not_found", "there is no such event; check the id"),
		"a number from 1; correct it (request.parameter_invalid, limit)": fault.New(fault.Invalid, "request.parameter_invalid", "a number from 1; correct it").WithField("limit"),
		"no such parameter (request.parameter_unknown, a b)":             fault.New(fault.Invalid, "request.parameter_unknown", "no such parameter").WithField("a\nb"),
		"away (database.unavailable): no route to host":                  fault.New(fault.Unavailable, "database.unavailable", "away").WithCause(errors.New("no route\nto host")),
		"something else": errors.New("something\nelse"),
	} {
		require.Equal(t, want, describe(err))
	}
}
