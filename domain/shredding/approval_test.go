package shredding_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/shredding"
)

func TestApproval_IsRecorded(t *testing.T) {
	t.Parallel()
	move := func(n event.Sequence, state, actor string) shredding.Move {
		m := shredding.Move{State: state, RequestedBy: "p-1", Scope: "aa", Row: state, Sequence: n, Actor: event.Actor{Type: event.Human, ID: actor}}
		if state != "previewed" {
			m.ApprovedBy = "p-2"
		}
		return m
	}
	moves := []shredding.Move{move(1, "previewed", "p-1"), move(2, "approved", "p-2"), move(3, "redacted", "operator")}
	change := func(n int, f func(*shredding.Move)) []shredding.Move {
		out := slices.Clone(moves)
		f(&out[n])
		return out
	}
	for name, c := range map[string]struct {
		moves   []shredding.Move
		row     string
		adopted event.Sequence
		want    bool
	}{
		"recorded":                    {moves: moves, want: true},
		"recorded for this row":       {moves: moves, row: "approved", want: true},
		"recorded for another row":    {moves: moves, row: "other"},
		"none":                        {moves: []shredding.Move{moves[0], moves[2]}},
		"by another person":           {moves: change(1, func(m *shredding.Move) { m.Actor.ID = "p-1" })},
		"by a service":                {moves: change(1, func(m *shredding.Move) { m.Actor.Type = event.System })},
		"for another scope":           {moves: change(1, func(m *shredding.Move) { m.Scope = "bb" })},
		"of another approver":         {moves: change(1, func(m *shredding.Move) { m.ApprovedBy = "p-3" })},
		"requested by another person": {moves: change(0, func(m *shredding.Move) { m.RequestedBy = "p-2" })},
		"taken back":                  {moves: append(slices.Clone(moves[:2]), move(3, "previewed", "operator"))},
		"carried out when adopted":    {moves: moves[2:], adopted: 4, want: true},
		"approved when adopted":       {moves: change(1, func(m *shredding.Move) { m.Actor = event.Actor{} })[1:], adopted: 3, want: true},
		"carried out since":           {moves: moves[2:], adopted: 3},
	} {
		a := shredding.Approval{RequestedBy: "p-1", ApprovedBy: "p-2", Scope: "aa", Row: c.row, Lasting: shredding.RedactionLasts, Adopted: c.adopted}
		require.Equal(t, c.want, a.IsRecorded(c.moves), name)
	}
}
