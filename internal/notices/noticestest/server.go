// Package noticestest is a mail server for tests. It speaks SMTP with STARTTLS and
// AUTH PLAIN on loopback, and keeps what it takes.
package noticestest

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"io"
	"mime"
	"mime/quotedprintable"
	"net"
	"net/http/httptest"
	"net/mail"
	"strings"
	"sync"
	"testing"
	"time"
)

// Letter is one that a mail server took.
type Letter struct {
	From, Auth        string
	To                []string
	Secure            bool // it came over TLS
	Subject, ID, Body string
}

// Server is a mail server on loopback that speaks SMTP with STARTTLS and AUTH.
type Server struct {
	net.Listener
	cert  tls.Certificate
	Roots *x509.CertPool
	Got   chan Letter

	mu     sync.Mutex // guards answer
	answer string     // to RCPT
}

// Serve runs a mail server until the test ends.
func Serve(t testing.TB) *Server {
	web := httptest.NewUnstartedServer(nil) // its certificate is for 127.0.0.1
	web.StartTLS()
	defer web.Close()
	s := &Server{cert: web.TLS.Certificates[0], Roots: x509.NewCertPool(), Got: make(chan Letter, 100)}
	s.Roots.AddCert(web.Certificate())
	var err error
	s.Listener, err = net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	all.Go(func() {
		for {
			conn, err := s.Accept()
			if err != nil {
				return
			}
			all.Go(func() { s.talk(conn) })
		}
	})
	t.Cleanup(func() { _ = s.Close(); all.Wait() })
	return s
}

// Answer sets what it says to each recipient; "": it takes it.
func (s *Server) Answer(answer string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answer = answer
}

func (s *Server) talk(conn net.Conn) {
	defer func() { _ = conn.Close() }()
	_ = conn.SetDeadline(time.Now().Add(time.Minute))
	in := bufio.NewReader(conn)
	say := func(text string) { _, _ = io.WriteString(conn, text+"\r\n") }
	say("220 mail")
	var l Letter
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			return
		}
		line = strings.TrimRight(line, "\r\n")
		word, rest, _ := strings.Cut(line, " ")
		switch strings.ToUpper(word) {
		case "EHLO":
			say("250-mail\r\n250-STARTTLS\r\n250 AUTH PLAIN")
		case "STARTTLS":
			say("220 go on")
			secure := tls.Server(conn, &tls.Config{Certificates: []tls.Certificate{s.cert}})
			conn, in, l.Secure = secure, bufio.NewReader(secure), true
		case "AUTH":
			b, _ := base64.StdEncoding.DecodeString(strings.TrimPrefix(rest, "PLAIN "))
			l.Auth = string(b)
			say("235 welcome")
		case "MAIL":
			l.From = rest
			say("250 ok")
		case "RCPT":
			s.mu.Lock()
			answer := s.answer
			s.mu.Unlock()
			if answer != "" {
				say(answer)
				continue
			}
			l.To = append(l.To, rest)
			say("250 ok")
		case "DATA":
			say("354 go on")
			var text strings.Builder
			for {
				line, err := in.ReadString('\n')
				if err != nil {
					return
				}
				if line == ".\r\n" {
					break
				}
				text.WriteString(line)
			}
			if m, err := mail.ReadMessage(strings.NewReader(text.String())); err == nil {
				l.Subject, _ = (&mime.WordDecoder{}).DecodeHeader(m.Header.Get("Subject"))
				l.ID = m.Header.Get("Message-ID")
				b, _ := io.ReadAll(quotedprintable.NewReader(m.Body))
				l.Body = string(b)
			}
			s.Got <- l
			say("250 taken")
		case "QUIT":
			say("221 bye")
			return
		default:
			say("250 ok")
		}
	}
}
