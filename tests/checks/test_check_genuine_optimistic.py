"""Genuineness, and the rules and the figure of optimistic delivery."""

from trace_rows import Trace, told


def test_genuine_is_unknown_without_send_and_receive_rows() -> None:
    verdict = Trace().multicast("c1", "a", "g0").deliver("g0/0", "a").end().verdict("genuine")
    assert verdict.status == "unknown"
    assert "--trace full" in verdict.reason


def test_genuine_is_unknown_when_no_row_says_what_it_is_about() -> None:
    verdict = Trace().multicast("c1", "a", "g0").send("c1", "g0/0").verdict("genuine")
    assert verdict.status == "unknown"
    assert "about" in verdict.reason


def test_genuine_holds_when_only_sender_and_destinations_take_part() -> None:
    trace = Trace().start("g0/0", "g1/0", "g2/0").multicast("c1", "a", "g0", "g1")
    trace.send("c1", "g0/0", "a").send("g0/0", "g1/0", "a").send("g1/0", "c1", "a").send("g2/0", "g0/0")
    assert trace.verdict("genuine").status == "ok"


def test_a_bystander_at_either_end_is_shown() -> None:
    for sender, receiver in (("g0/0", "g2/0"), ("g2/0", "g0/0")):
        trace = Trace().start("g0/0", "g2/0").multicast("c1", "a", "g0", "g1").send(sender, receiver, "a")
        verdict = trace.verdict("genuine")
        assert verdict.status == "violated"
        assert told(verdict) == [("multicast", "c1", "a"), ("send", sender, None)]
        assert verdict.counterexample[1].about == ("a",)
        assert verdict.reason == (
            "g2/0 took part in ordering a (send), but it is of g2, neither the sender c1 nor in g0, g1"
        )


def test_one_of_several_messages_that_a_row_is_about_is_enough() -> None:
    trace = Trace().multicast("c1", "a", "g0").multicast("c1", "b", "g1").start("g0/0", "g0/1")
    verdict = trace.send("g0/0", "g0/1", "a", "b").verdict("genuine")
    assert verdict.status == "violated"
    assert told(verdict) == [("multicast", "c1", "b"), ("send", "g0/0", None)]


def test_another_client_is_a_bystander() -> None:
    verdict = Trace().multicast("c1", "a", "g0").send("g0/0", "c2", "a").verdict("genuine")
    assert verdict.status == "violated"
    assert "c2 took part in ordering a (send), but it is a client" in verdict.reason


def test_genuine_does_not_depend_on_the_order_of_the_rows() -> None:
    trace = Trace().send("c1", "g0/0", "a").send("g0/0", "g1/0", "a").start("g0/0", "g1/0")
    trace.multicast("c1", "a", "g0", "g1")
    assert trace.verdict("genuine").status == "ok"


def test_traffic_about_a_message_that_nobody_multicast() -> None:
    verdict = Trace().send("g0/0", "g0/1", "ghost").verdict("genuine")
    assert verdict.status == "violated"
    assert verdict.reason == "g0/0 took part in ordering ghost (send), which nobody multicast"


# ---------------------------------------------------------------- optimistic


def guessed(*order: str) -> Trace:
    trace = Trace()
    for sender, message in (("c1", "a"), ("c2", "b"), ("c3", "c"), ("c4", "d")):
        trace.multicast(sender, message, "g0")
    return trace.optdeliver("g0/0", *order)


def test_optimistic_is_unknown_without_optdeliver_rows() -> None:
    assert Trace().multicast("c1", "a", "g0").deliver("g0/0", "a").verdict("optimistic").status == "unknown"


def test_no_mistake_when_the_orders_agree() -> None:
    verdict = guessed("a", "b", "c", "d").deliver("g0/0", "a", "b", "c", "d").verdict("optimistic")
    assert verdict.status == "ok"
    assert verdict.figure == {"mistakes": 0, "delivered": 4, "share": 0.0}


def test_one_swap_is_one_mistake() -> None:
    verdict = guessed("a", "b", "c", "d").deliver("g0/0", "b", "a", "c", "d").verdict("optimistic")
    assert verdict.status == "ok"
    assert verdict.figure == {"mistakes": 1, "delivered": 4, "share": 0.25}


def test_a_message_that_comes_last_though_guessed_first_makes_all_others_mistakes() -> None:
    verdict = guessed("a", "b", "c", "d").deliver("g0/0", "b", "c", "d", "a").verdict("optimistic")
    assert verdict.figure == {"mistakes": 3, "delivered": 4, "share": 0.75}


def test_a_message_that_was_never_guessed_is_a_mistake() -> None:
    verdict = guessed("a").deliver("g0/0", "a", "b").verdict("optimistic")
    assert verdict.figure == {"mistakes": 1, "delivered": 2, "share": 0.5}


def test_optdeliver_keeps_integrity_validity_and_fifo() -> None:
    twice = guessed("a", "b", "a").verdict("optimistic")
    assert (twice.status, told(twice)) == ("violated", [("optdeliver", "g0/0", "a"), ("optdeliver", "g0/0", "a")])
    assert twice.reason == "g0/0 optimistically delivered a twice"

    ghost = guessed("ghost").verdict("optimistic")
    assert (ghost.status, told(ghost)) == ("violated", [("optdeliver", "g0/0", "ghost")])

    stray = guessed("a").optdeliver("g1/0", "b").verdict("optimistic")
    assert (stray.status, told(stray)) == ("violated", [("multicast", "c2", "b"), ("optdeliver", "g1/0", "b")])

    overtaken = guessed().multicast("c1", "e", "g0").optdeliver("g0/0", "e", "a").verdict("optimistic")
    assert overtaken.status == "violated"
    assert told(overtaken) == [
        ("multicast", "c1", "a"),
        ("multicast", "c1", "e"),
        ("optdeliver", "g0/0", "e"),
        ("optdeliver", "g0/0", "a"),
    ]
