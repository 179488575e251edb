package cli

import (
	"errors"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/modules"
)

func TestDescribe(t *testing.T) {
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

func TestUnknownCommand(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]string{
		"subscriptionz":           `unknown command "subscriptionz" for "backbone"; did you mean subscriptions?`,
		"frobnicate --help":       "unknown command \"frobnicate\" for \"backbone\"; see `backbone --help`",
		"subscriptions lits":      `unknown command "lits" for "backbone subscriptions"; did you mean list?`,
		"webhooks nothing --help": "unknown command \"nothing\" for \"backbone webhooks\"; see `backbone webhooks --help`",
		"fanout staus --json":     `unknown command "staus" for "backbone fanout"; did you mean status?`,
		"help erasure aprove":     `unknown command "aprove" for "backbone erasure"; did you mean approve?`,
		"completion basch":        `unknown command "basch" for "backbone completion"; did you mean bash?`,
	} {
		err := unknownCommand(newRoot(modules.BuiltIn()), strings.Fields(line))
		require.EqualError(t, err, want, line)
		var coded exitError
		require.ErrorAs(t, err, &coded)
		require.Equal(t, 2, coded.ExitCode())
	}
	for _, line := range []string{"", "--version", "help", "help erasure", "subscriptions", "subscriptions --help", "subscriptions list", "entity vendor V-1", "completion bash", "__complete subs", "__completeNoDesc subs"} {
		require.NoError(t, unknownCommand(newRoot(modules.BuiltIn()), strings.Fields(line)), line)
	}
}

func TestSurplusArguments(t *testing.T) {
	t.Parallel()
	root := newRoot(modules.BuiltIn())
	var check func(cmd *cobra.Command)
	check = func(cmd *cobra.Command) {
		for _, sub := range cmd.Commands() {
			check(sub)
		}
		if cmd.HasSubCommands() || strings.Contains(cmd.Use, "...") {
			return
		}
		require.NotNil(t, cmd.Args, cmd.CommandPath())
		err := cmd.Args(cmd, []string{"a", "b", "c", "d"})
		require.ErrorContains(t, err, "; see `"+cmd.CommandPath()+" --help`")
		var coded exitError
		require.ErrorAs(t, err, &coded)
		require.Equal(t, 2, coded.ExitCode())
	}
	check(root)
}
