"""Launches, lists and ends machines of clouds: Tencent Cloud, AWS, and whoever speaks the webhook protocol."""
