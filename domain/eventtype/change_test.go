package eventtype_test

import (
	"crypto/sha256"
	"encoding/hex"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/domain/eventtype"
)

// The format is frozen: checksums that were exported must be found again for ever.
func TestChainChecksum_KnownAnswers(t *testing.T) {
	t.Parallel()
	first := eventtype.Change{
		Number: 1, Action: eventtype.ActionRegistered, Type: "crm.lead.won", SchemaVersion: 1, Digest: sha256.Sum256([]byte("document")),
		Actor: "p-1", At: time.Date(2026, 3, 31, 12, 0, 0, 123456000, time.UTC),
	}
	next := first
	next.Number, next.Action, next.Reason = 2, eventtype.ActionDeprecated, "überholt"
	link := first.ChainChecksum([sha256.Size]byte{})
	require.Equal(t, "8babc9e4e2936e8860d4fb85204e9769cf4bf010073017ca530312a7d3f86b5c", hex.EncodeToString(link[:]))
	link = next.ChainChecksum(link)
	require.Equal(t, "c0b0c0bd6456d8b05363e94cbb4675f9c62c50afd503a1914972325956f48154", hex.EncodeToString(link[:]))
}

// Every part of a change is covered, and no part can pass for a piece of another.
func TestChainChecksum_EveryField(t *testing.T) {
	t.Parallel()
	base := eventtype.Change{
		Number: 1, Action: eventtype.ActionDeprecated, Type: "crm.lead.won", SchemaVersion: 1, Digest: sha256.Sum256([]byte("document")),
		Actor: "p-1", Reason: "superseded", At: time.Date(2026, 3, 31, 12, 0, 0, 0, time.UTC),
	}
	seen := map[[sha256.Size]byte]bool{base.ChainChecksum([sha256.Size]byte{}): true, base.ChainChecksum([sha256.Size]byte{1}): true}
	require.Len(t, seen, 2, "the change before it")
	for name, edit := range map[string]func(*eventtype.Change){
		"number": func(c *eventtype.Change) { c.Number++ }, "action": func(c *eventtype.Change) { c.Action = eventtype.ActionReactivated },
		"type": func(c *eventtype.Change) { c.Type += "x" }, "version": func(c *eventtype.Change) { c.SchemaVersion++ },
		"digest": func(c *eventtype.Change) { c.Digest[31]++ }, "actor": func(c *eventtype.Change) { c.Actor = "p-2" },
		"reason": func(c *eventtype.Change) { c.Reason = "" }, "time": func(c *eventtype.Change) { c.At = c.At.Add(time.Microsecond) },
		"a border": func(c *eventtype.Change) { c.Actor, c.Reason = "p-1s", "uperseded" },
	} {
		c := base
		edit(&c)
		link := c.ChainChecksum([sha256.Size]byte{})
		require.False(t, seen[link], name)
		seen[link] = true
	}
}
