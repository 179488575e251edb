package event_test

import (
	"encoding/hex"
	"reflect"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/test/testkit/allfields"
)

// The envelope of the known answers; sealing itself is not part of this package.
const sealedEmail = "AQAAAAABQEFCQ0RFRkdISUpLTE1OT1BRUlNUVVZX2bbjpeZ5xwtyGu8TLIlGyC_fsXfZ3jQ7m1cFfvIapIyAgYKDhIWGh4iJiotYL4CleetSEaNwXFzqOG3s4t2BF9GXLynK4JwmLAOpysuKc1iFkbYMLgplozxSbos"

func TestHashKnownAnswers(t *testing.T) {
	t.Parallel()
	var salt event.Salt
	for i := range salt {
		salt[i] = byte(0x10 + i)
	}
	payload := []byte(`{"data":{"email":{"$pii":"` + sealedEmail + `","sub":"employee:E-1"},"grade":1.50},"dimensions":{},"entity_refs":[]}`)
	payloadHash := event.HashPayload(salt, payload)
	require.Equal(t, "387c6bc3c7d648ef02e0d18d22adfbd80c52a00c0386b9b53ab78b1dc428e652", hex.EncodeToString(payloadHash[:]))

	genesis := event.GenesisChecksum("ledger.example.org", 7)
	require.Equal(t, "123cf7f2916be9c7bb1af0da600e90662cf4758e52b2243bf6d006753955487c", hex.EncodeToString(genesis[:]))

	var id event.ID
	for i := range id {
		id[i] = byte(0xa0 + i)
	}
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	s := event.Skeleton{
		Partition: 7, Sequence: 1, ID: id, Type: "hr.employee.hired", SchemaVersion: 1,
		OccurredAt: at, RecordedAt: at, EffectiveDate: event.MustDate("2026-01-01"),
		Scope:     event.Scope{TenantID: "acme", LegalEntity: "USMF"},
		ActorType: event.Human, ActorID: "u-1", CorrelationID: "c-1",
		Stream: event.StreamID{Type: "employee", ID: "E-1"}, StreamVersion: 1,
		Tags: []string{"onboarding"}, PII: map[string]string{"/data/email": "contact"},
		PayloadHash: payloadHash,
	}
	require.Len(t, s.AppendPreimage(nil), 301)
	checksum, _ := s.ChainChecksum(genesis, nil)
	require.Equal(t, "63b29bc1f982232bc81692856ecc49919aefc76c68398a1b2e1a29072ac4415d", hex.EncodeToString(checksum[:]))
}

func TestAppendPreimage_EveryField(t *testing.T) {
	t.Parallel()
	var all event.Skeleton
	allfields.Fill(&all)
	full := all.AppendPreimage(nil)
	fields := reflect.TypeFor[event.Skeleton]()
	for i := range fields.NumField() {
		name := fields.Field(i).Name
		without := all
		reflect.ValueOf(&without).Elem().Field(i).SetZero()
		if name == "Checksum" {
			require.Equal(t, full, without.AppendPreimage(nil), "the checksum covers the rest")
			continue
		}
		require.NotEqual(t, full, without.AppendPreimage(nil), "%s is hashed", name)
	}
}

func TestDatesBeforeTheEpoch(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"1970-01-01", "1969-12-31", "1900-03-01", "2026-02-28", "9999-12-31"} {
		d, err := event.ParseDate(text)
		require.NoError(t, err)
		require.Equal(t, text, d.String())
	}
	require.Equal(t, event.Date(-1), event.MustDate("1969-12-31"))
	require.Equal(t, event.MustDate("1969-12-31"), event.DateOf(time.Date(1969, 12, 31, 23, 59, 0, 0, time.FixedZone("x", 3600))))
	_, err := event.ParseDate("2026-02-30")
	require.Error(t, err)
}
