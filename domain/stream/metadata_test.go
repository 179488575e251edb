package stream_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/stream"
)

func TestParseMetadata_Refusals(t *testing.T) {
	t.Parallel()
	for document, field := range map[string]string{
		`[]`:                          "",
		` null`:                       "",
		`{"max_age":1}`:               "",
		`{"max_count":"1"}`:           "",
		`{"max_count":1.5}`:           "",
		`{"max_count":0}`:             "/max_count",
		`{"max_count":1000000001}`:    "/max_count",
		`{"max_age_seconds":-1}`:      "/max_age_seconds",
		`{"max_age_seconds":1e1}`:     "",
		`{"cache_control":"public"}`:  "/cache_control",
		`{"cache_control":"max-age"}`: "/cache_control",
		`{"cache_control":"max-age=60, s-maxage=60"}`:                 "/cache_control",
		`{"cache_control":"no-store\r\nSet-Cookie: a=b"}`:             "/cache_control",
		`{"cache_control":"no-store\n"}`:                              "/cache_control",
		`{"cache_control":"private,private"}`:                         "/cache_control",
		`{"cache_control":"max-age=1,max-age=2"}`:                     "/cache_control",
		`{"cache_control":" "}`:                                       "/cache_control",
		`{"cache_control":"` + strings.Repeat("no-store,", 30) + `"}`: "/cache_control",
		`{"acl":{"read":["Admin"]}}`:                                  "/acl/read/0",
		`{"acl":{"write":["a","a"]}}`:                                 "/acl/write/1",
		`{"acl":{"delete":["` + strings.Repeat(`a","`, 33) + `b"]}}`:  "/acl/delete",
		`{"acl":{"metadata":[""]}}`:                                   "/acl/metadata/0",
		`{"acl":{"own":["a"]}}`:                                       "",
		`{"custom":[1]}`:                                              "/custom",
		`{"custom":{"a":"` + strings.Repeat("x", 16<<10) + `"}}`:      "/custom",
	} {
		_, err := stream.ParseMetadata([]byte(document))
		f, ok := fault.As(err)
		require.True(t, ok, document)
		require.Contains(t, []string{"stream.metadata_invalid", "stream.metadata_too_large"}, f.Code)
		require.Equal(t, field, f.Field, document)
	}
}

func TestSettings_RoundTrip(t *testing.T) {
	t.Parallel()
	for document, settings := range map[string]string{
		`{}`: "",
		`{"max_age_seconds":null,"max_count":null,"cache_control":null,"acl":null,"custom":null}`: "",
		`{"acl":{}}`:             "",
		`{"acl":{"read":null}}`:  "",
		`{"custom":{"n":12.10}}`: "",
		`{"acl":{"read":[]}}`:    `{"acl":{"read":[]}}`,
		`{"max_age_seconds":3600,"max_count":5,"cache_control":"max-age=60","acl":{"write":["module"]},"custom":{"a":1}}`: `{"max_age_seconds":3600,"max_count":5,"cache_control":"max-age=60","acl":{"write":["module"]}}`,
	} {
		m, err := stream.ParseMetadata([]byte(document))
		require.NoError(t, err, document)
		kept, access, err := m.Settings()
		require.NoError(t, err)
		require.Equal(t, settings, string(kept), document)
		require.Equal(t, m.ACL != nil, access != nil)
		again, err := stream.ParseSettings(kept)
		require.NoError(t, err)
		m.Custom = nil
		require.Equal(t, m, again, document)
	}
	m, err := stream.ParseMetadata([]byte(`{"custom": {"n": 12.10}}`))
	require.NoError(t, err)
	encoded, err := json.Marshal(m)
	require.NoError(t, err)
	require.Equal(t, `{"custom":{"n":12.10}}`, string(encoded))
	_, err = stream.ParseSettings([]byte("{"))
	require.Equal(t, fault.Internal, fault.KindOf(err))
}

func TestCacheHeader(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"":                           "",
		"max-age=60,must-revalidate": "private, max-age=60, must-revalidate",
		"no-cache, private":          "no-cache, private",
		"no-store":                   "no-store",
		"max-age=60\r\nX: y":         "",
		"stale-if-error=5":           "private, stale-if-error=5",
	} {
		require.Equal(t, want, stream.Metadata{CacheControl: text}.CacheHeader(), text)
	}
}

func TestSinceAndFloor(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 3, 2, 9, 0, 0, 0, time.UTC)
	require.True(t, stream.Metadata{}.Since(now).IsZero())
	require.Equal(t, now.Add(-time.Minute), stream.Metadata{MaxAgeSeconds: 60}.Since(now))
	for _, c := range []struct {
		count         int64
		current, want event.Version
	}{{0, 9, 1}, {3, 0, 1}, {3, 3, 1}, {3, 4, 2}, {1, 9, 9}} {
		require.Equal(t, c.want, stream.Metadata{MaxCount: c.count}.Floor(c.current))
	}
}

func TestACLCheck(t *testing.T) {
	t.Parallel()
	a := &stream.ACL{Read: []string{"controller"}, Write: []string{}}
	for _, c := range []struct {
		right stream.Right
		roles []string
		want  bool
	}{
		{stream.Read, []string{"cfo", "controller"}, true},
		{stream.Read, []string{"cfo"}, false},
		{stream.Read, []string{}, false},
		{stream.Read, []string{"auditor"}, true},
		{stream.Write, []string{"controller"}, false},
		{stream.Write, []string{"admin"}, true},
		{stream.Write, nil, true},
		{stream.Delete, []string{"cfo"}, true},
		{stream.ChangeMetadata, []string{}, true},
	} {
		err := a.Check(c.right, c.roles)
		if c.want {
			require.NoError(t, err, "%+v", c)
		} else {
			require.Equal(t, "stream.access_denied", fault.CodeOf(err), "%+v", c)
		}
		encoded, err := json.Marshal(a)
		require.NoError(t, err)
		require.Equal(t, c.want, stream.CheckAccess(encoded, c.right, c.roles) == nil)
	}
	require.NoError(t, (*stream.ACL)(nil).Check(stream.Read, []string{}))
	require.Nil(t, stream.CheckAccess(nil, stream.Write, []string{}))
	require.NotNil(t, stream.CheckAccess([]byte("broken"), stream.Write, []string{"module"}), "a list that cannot be decoded denies access")
	require.Nil(t, stream.CheckAccess([]byte("broken"), stream.Write, []string{"admin"}))
	for action, right := range map[event.StreamAction]stream.Right{
		event.AppendToStream: stream.Write, event.RecreateStream: stream.Write, event.DeleteStream: stream.Delete,
		event.TombstoneStream: stream.Delete, event.DescribeStream: stream.ChangeMetadata,
	} {
		require.Equal(t, right, stream.RightFor(action))
	}
	require.Equal(t, event.AppendToStream, stream.ActionOf("hr.employee.hired"))
	require.Equal(t, event.TombstoneStream, stream.ActionOf(stream.Tombstoned))
}
