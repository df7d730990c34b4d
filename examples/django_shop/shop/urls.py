"""The addresses of the pages."""

from django.urls import path

from shop import views

urlpatterns = [path("orders", views.place), path("orders/<str:number>", views.show)]
