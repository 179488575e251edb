package shredding_test

import (
	"bytes"
	"encoding/gob"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/shredding"
)

const canary = "canary-value-4711"

type carrier struct {
	Shown  shredding.Secret
	hidden shredding.Secret
	plain  shredding.Plain
	list   []shredding.Plain
	lookup map[string]shredding.Secret
	any    any
}

func TestSecretFormatting(t *testing.T) {
	t.Parallel()
	secret, plain := shredding.NewSecret([]byte(canary)), shredding.NewPlain([]byte(canary))
	key := testKey(t, 0, 1, []byte(canary + canary)[:32])
	c := carrier{secret, secret, plain, []shredding.Plain{plain}, map[string]shredding.Secret{"k": secret}, plain}
	for _, v := range []any{secret, &secret, plain, &plain, key, &key, c, &c, []any{secret, plain, c}, fmt.Errorf("wrapped: %v", plain)} {
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d", "%o", "%c", "%t"} {
			clean(t, fmt.Sprintf(verb, v))
		}
		var log bytes.Buffer
		slog.New(slog.NewTextHandler(&log, nil)).Info("m", "v", v)
		slog.New(slog.NewJSONHandler(&log, nil)).Info("m", "v", v, slog.Group("g", "v", v))
		clean(t, log.String())
		out, _ := json.Marshal(v)
		clean(t, string(out))
		out, _ = xml.Marshal(v)
		clean(t, string(out))
		var b bytes.Buffer
		_ = gob.NewEncoder(&b).Encode(v)
		clean(t, b.String())
	}
	for _, v := range []any{secret, plain} {
		require.Equal(t, "[SECRET]", fmt.Sprint(v))
		require.Equal(t, "[SECRET]", fmt.Sprintf("%#v", v))
		_, err := json.Marshal(v)
		require.Error(t, err)
		_, err = json.Marshal(map[string]any{"v": v})
		require.Error(t, err)
		_, err = xml.Marshal(v)
		require.Error(t, err)
	}
	require.Equal(t, "[SECRET] [SECRET]", secret.String()+" "+plain.GoString())
	require.Equal(t, "[SECRET]", plain.LogValue().String())
	require.Equal(t, canary, string(plain.Reveal()))
}

// clean looks for the canary as text, in hexadecimal and as a list of bytes.
func clean(t *testing.T, out string) {
	t.Helper()
	list := fmt.Sprintf("%d", []byte(canary)[:6])
	for _, form := range []string{canary[:6], fmt.Sprintf("%x", canary[:6]), fmt.Sprintf("%X", canary[:6]), strings.Trim(list, "[]"), "0x63, 0x61"} {
		require.NotContains(t, out, form)
	}
}

func TestZero_Copies(t *testing.T) {
	t.Parallel()
	held := []byte(canary)
	s := shredding.NewSecret(held)
	second := s
	second.Zero()
	require.Equal(t, make([]byte, len(canary)), held, "the bytes are overwritten")
	require.Equal(t, "pii.key_evicted", fault.CodeOf(s.Use(func([]byte) error { return nil })))
	s.Zero()
	shredding.Secret{}.Zero()
	require.Equal(t, fault.Unavailable, fault.KindOf(shredding.Secret{}.Use(func([]byte) error { return nil })))
	require.Nil(t, shredding.Plain{}.Reveal())
	p := shredding.NewPlain([]byte(canary))
	p.Reveal()[0] = 'X'
	require.Equal(t, canary, string(p.Reveal()), "what is revealed is a copy")

	failed := errors.New("failed")
	require.Equal(t, failed, shredding.NewSecret([]byte("x")).Use(func([]byte) error { return failed }))
}

// A key that is evicted while values are sealed must never seal with zeros.
func TestZero_ConcurrentUses(t *testing.T) {
	t.Parallel()
	for range 200 {
		key, again := testKey(t, 0, 1, run(0, 32)), testKey(t, 0, 1, run(0, 32))
		var sealing sync.WaitGroup
		for range 2 {
			sealing.Go(func() {
				for {
					e, err := shredding.Seal(key, knownLocation(), employee, []byte("1"))
					if err != nil {
						if fault.CodeOf(err) != "pii.key_evicted" {
							t.Error(err)
						}
						return
					}
					if _, err := shredding.Open(again, knownLocation(), employee, e); err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		key.DEK.Zero()
		sealing.Wait()
	}
}
